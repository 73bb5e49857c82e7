"""The devices of a worker: how many of which kind, and making them visible."""

from __future__ import annotations

import dataclasses

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.wording import counted

GANGS = ("multi_worker_mirrored", "parameter_server")
"""Strategies of several processes."""

MOST_ON_CPU = 16
"""Most logical devices that a CPU is divided into; more than cores gain nothing."""

_ALONE = "a single replica is no faster than one_device"


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that each worker trains on.

    Attributes:
      count: Number of devices; None for a TPU: its size is known after connecting.
      kind: `CPU`, `GPU` or `TPU`.
      remark: The reason, as part of a sentence; "" if self-evident.
    """

    count: int | None
    kind: str
    remark: str


def decide(
    name: str, number: int | None, cluster: ClusterSpec, workers: int
) -> Devices:
    """The devices of each worker under a strategy.

    Args:
      name: The strategy's name.
      number: `trainer.distribution.devices`.
      cluster: The cluster, from the environment; without addresses, local workers
        divide its GPUs.
      workers: Number of processes that compute gradients.

    Raises:
      UserError: Fewer devices are visible, or the strategy cannot use as many.
    """
    if name == "tpu":
        return Devices(None, "TPU", "")
    if name == "one_device":
        if (number or 1) > 1:
            raise refusal(
                "devices",
                "'one_device' trains on one",
                received=str(number),
                remedy="Use `strategy: mirrored`, or remove `devices`.",
            )
        return Devices(1, "GPU" if cluster.gpus else "CPU", seen(cluster.gpus))
    if name == "parameter_server" and cluster.task and cluster.task.type != "worker":
        # A coordinator or parameter server uses no GPU; the workers check theirs.
        return Devices(number or 1, "CPU", counted(workers, "worker"))
    if cluster.gpus:
        return _on_gpus(name, number, cluster, workers)
    return _on_cpu(name, number, workers)


def configure(name: str, kind: str, count: int) -> list[str]:
    """Makes `count` devices visible, GPUs with growing memory, and returns their names.

    Must be called once, before TensorFlow runs anything.

    Args:
      name: The strategy's name.
      kind: `CPU` or `GPU`.
      count: Number of devices; more than one CPU means logical devices.

    Raises:
      UserError: TensorFlow finds fewer GPUs than the driver shows.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if kind == "GPU" and (gpus or name != "one_device"):
        if len(gpus) < count:
            raise refusal(
                "strategy",
                f"{name!r} is to train on {counted(count, 'GPU')} here, but TensorFlow "
                f"finds {len(gpus)}",
                remedy="Install its CUDA libraries (`make setup EXTRAS=gpu`), or set "
                "CUDA_VISIBLE_DEVICES=-1 to train on the CPU.",
            )
        tf.config.set_visible_devices(gpus[:count], "GPU")
        return [f"/gpu:{index}" for index in range(count)]
    if count > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        tf.config.set_logical_device_configuration(cpu, logical)
    return [f"/cpu:{index}" for index in range(count)]


def refusal(
    key: str,
    message: str,
    *,
    received: str = "",
    expected: str = "",
    remedy: str = "",
) -> UserError:
    """An error about the setting `trainer.distribution.KEY`.

    Args:
      key: Key below `trainer.distribution`.
      message: The problem, see `UserError`.
      received: See `UserError`.
      expected: See `UserError`.
      remedy: See `UserError`.
    """
    return UserError(
        message,
        key=f"trainer.distribution.{key}",
        received=received,
        expected=expected,
        remedy=remedy,
    )


def seen(gpus: int) -> str:
    """The number of visible GPUs as a clause: `2 GPUs are visible`."""
    if not gpus:
        return "no GPU is visible"
    return f"{counted(gpus, 'GPU')} {'is' if gpus == 1 else 'are'} visible"


def _on_gpus(
    name: str, number: int | None, cluster: ClusterSpec, workers: int
) -> Devices:
    local = name in GANGS and not cluster.addresses
    sharing = workers if local else 1
    one_each = name == "parameter_server"
    if one_each and (number or 1) > 1:
        raise refusal(
            "devices",
            f"each worker of {name!r} computes on one device",
            received=str(number),
            remedy="Remove it, or use more `workers`.",
        )
    devices = number or (1 if one_each else cluster.gpus // sharing)
    wanted = max(devices, 1) * sharing
    if wanted > cluster.gpus:
        each = f" ({workers} workers with {max(devices, 1)} each)" if local else ""
        raise refusal(
            "devices" if number else "workers",
            f"{counted(wanted, 'GPU')} would be needed{each}, but {seen(cluster.gpus)}",
            remedy="Use fewer `workers` or `devices`, or hide the GPUs by "
            "CUDA_VISIBLE_DEVICES=-1 to train on the CPU.",
        )
    remark = seen(cluster.gpus)
    if name in GANGS:
        remark = f"{counted(workers, 'worker')} with {counted(devices, 'GPU')} each"
    elif wanted < cluster.gpus:
        remark += f", {wanted} of them in use"
    if workers * devices == 1:
        remark += f"; {_ALONE}"
    return Devices(devices, "GPU", remark)


def _on_cpu(name: str, number: int | None, workers: int) -> Devices:
    devices = number or 1
    if name in GANGS:
        if devices > 1:
            raise refusal(
                "devices",
                f"without a GPU each worker of {name!r} has one device, its CPU",
                received=str(number),
                remedy="Remove it, or use more `workers`.",
            )
        remark = f"{counted(workers, 'worker')}, {seen(0)}"
    elif devices > MOST_ON_CPU:
        raise refusal(
            "devices",
            f"{seen(0)}, and a CPU stands in for at most {MOST_ON_CPU}",
            received=str(number),
            remedy="Use fewer; more than there are cores gain nothing.",
        )
    elif devices > 1:
        remark = f"{seen(0)}, {devices} logical devices of the CPU stand in"
    else:
        remark = f"{seen(0)} and `devices` is not set"
    if workers * devices == 1:
        remark += f"; {_ALONE}"
    return Devices(devices, "CPU", remark)
