"""Which `tf.distribute` strategy trains, and why.

`choose` is a pure decision and needs no TensorFlow: the orchestrator calls it before
the first node. `build` makes the strategy, in the process that trains.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from strategos.components.slow_imports import tf
from strategos.components.trainer.distribution import devices, strategy_limits, tpu
from strategos.components.trainer.distribution.devices import GANGS, refusal
from strategos.components.trainer.distribution.environment import (
    SYNCHRONOUS,
    ClusterSpec,
    Task,
)
from strategos.components.trainer.spec import Settings
from strategos.components.wording import counted

StrategyName = Literal[
    "auto",
    "one_device",
    "mirrored",
    "multi_worker_mirrored",
    "parameter_server",
    "tpu",
    "central_storage",
]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
DEFAULT_WORKERS = 2
DEFAULT_PARAMETER_SERVERS = 1
DEFAULT_SHARD_BYTES = 256 << 10


@dataclasses.dataclass(frozen=True)
class Choice:
    """A strategy by name, and the reason for it.

    Attributes:
      name: Name in `trainer.distribution.strategy`.
      reason: The reason, as one line of text.
      workers: Number of processes that compute gradients.
      parameter_servers: Number of processes that hold variables.
      devices: Devices of each worker, one replica on each; None for a TPU: its size is
        known after connecting.
      kind: Kind of the devices: `CPU`, `GPU` or `TPU`.
    """

    name: str
    reason: str
    workers: int = 1
    parameter_servers: int = 0
    devices: int | None = 1
    kind: str = "CPU"

    @property
    def replicas(self) -> int | None:
        """Copies of the model that share a global batch; None for a TPU.

        Under parameter servers each worker takes whole global batches, so only the
        devices of one worker share one.
        """
        if self.devices is None:
            return None
        return self.devices * (self.workers if self.is_synchronous else 1)

    @property
    def is_synchronous(self) -> bool:
        """Whether all replicas take each step together."""
        return self.name != "parameter_server"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of a gang that no environment names.

        In a synchronous gang the chief is the first worker; with parameter servers the
        chief is the coordinator, in addition to the workers.
        """
        workers = self.workers - self.is_synchronous
        return (
            Task("chief"),
            *(Task("worker", index) for index in range(workers)),
            *(Task("ps", index) for index in range(self.parameter_servers)),
        )


def choose(
    distribution: Mapping[str, Any],
    cluster: ClusterSpec,
    settings: Settings | None = None,
) -> Choice:
    """Chooses the strategy from the settings and the environment.

    A `cluster` without addresses stands for this machine: local workers divide its
    GPUs. One with addresses has the GPUs of this process's own host.

    Args:
      distribution: `trainer.distribution`; sizes in bytes, times in seconds.
      cluster: The cluster, from the environment.
      settings: If given, combinations with these are checked too.

    Raises:
      UserError: The settings are impossible in this environment.
    """
    wanted = distribution.get("strategy", "auto")
    if wanted not in STRATEGIES:
        expected = ", ".join(STRATEGIES)
        raise refusal("strategy", "", received=repr(wanted), expected=expected)
    name, why = wanted, "asked for"
    if wanted == "auto":
        name, why = _automatic(distribution, cluster)
    _check_tpu(name, _tpu(distribution, cluster)["name"])
    _check_cluster(name, cluster)
    workers, servers = processes(name, distribution, cluster)
    there = devices.decide(name, distribution.get("devices"), cluster, workers)
    reason = "; ".join(filter(None, (why, there.remark)))
    choice = Choice(name, reason, workers, servers, there.count, there.kind)
    _check_exchange(choice, distribution)
    if settings:
        strategy_limits.check_settings(choice, settings)
    return choice


def build(
    choice: Choice, distribution: Mapping[str, Any], cluster: ClusterSpec
) -> tf.distribute.Strategy:
    """Builds the strategy and configures this process's devices.

    Must be called once, before TensorFlow runs anything, with `TF_CONFIG` exported if
    the cluster has addresses. One device is TensorFlow's default strategy, which uses
    the first GPU if one exists: like `OneDeviceStrategy`, but without its copying
    iterators.

    Args:
      choice: The chosen strategy.
      distribution: `trainer.distribution`; sizes in bytes, times in seconds.
      cluster: The cluster, from the environment.

    Raises:
      UserError: TensorFlow finds too few devices, or the TPU does not answer.
    """
    if choice.name == "tpu":
        return tpu.build(**_tpu(distribution, cluster))
    if choice.name == "parameter_server":
        return tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            _partitioner(distribution, choice.parameter_servers),
        )
    names = devices.configure(choice.name, choice.kind, choice.devices or 1)
    if choice.name == "mirrored":
        return tf.distribute.MirroredStrategy(
            names, _cross_device_ops(distribution.get("cross_device_ops"))
        )
    if choice.name == "central_storage":
        return tf.distribute.experimental.CentralStorageStrategy(names)
    if choice.name == "multi_worker_mirrored":
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=_communication(distribution)
        )
    return tf.distribute.get_strategy()


def probe_tpu(distribution: Mapping[str, Any], cluster: ClusterSpec) -> None:
    """Checks that the TPU can be reached; takes less than 15 s in any case.

    Args:
      distribution: `trainer.distribution`.
      cluster: The cluster, from the environment.

    Raises:
      UserError: The TPU cannot be reached; the message has the cause.
    """
    tpu.probe(**_tpu(distribution, cluster))


def _automatic(
    distribution: Mapping[str, Any], cluster: ClusterSpec
) -> tuple[str, str]:
    """The strategy for `auto`, and the reason unless the devices are the reason."""
    name = _tpu(distribution, cluster)["name"]
    if name:
        return "tpu", f"there is a TPU, {name}"
    if cluster.count("ps"):
        return "parameter_server", "the cluster has parameter servers"
    if cluster.count(*SYNCHRONOUS) > 1:
        return "multi_worker_mirrored", "the cluster has several workers"
    if (distribution.get("devices") or cluster.gpus) > 1:
        return "mirrored", ""
    return "one_device", ""


def _tpu(distribution: Mapping[str, Any], cluster: ClusterSpec) -> dict[str, Any]:
    """Name, zone and project of the TPU that the settings or the environment name."""
    settings = distribution.get("tpu") or {}
    return {
        "name": settings.get("name") or cluster.tpu,
        "zone": settings.get("zone"),
        "project": settings.get("project"),
    }


def _check_tpu(name: str, there: str | None) -> None:
    if name == "tpu" and not there:
        raise refusal(
            "strategy",
            "no TPU is named: neither `trainer.distribution.tpu.name` nor the "
            "environment (TPU_NAME, COLAB_TPU_ADDR, GKE's TPU variables) has one",
            received="'tpu'",
            remedy="Name it, `local` for one in this machine, or use `auto`.",
        )
    if name == "multi_worker_mirrored" and there:
        raise refusal(
            "strategy",
            f"it cannot train on a TPU, and the environment names one: {there}",
            received=repr(name),
            remedy="Use `tpu`, which takes all cores of all hosts of a TPU, or unset "
            "TPU_NAME and its like to train on CPUs or GPUs.",
        )


def _check_cluster(name: str, cluster: ClusterSpec) -> None:
    """Rejects a strategy that does not fit the cluster of TF_CONFIG."""
    tasks = ", ".join(task.name for task in cluster.tasks)
    if name == "parameter_server" and tasks:
        for kind, role in (
            ("chief", "hands out the steps"),
            ("worker", "takes them"),
            ("ps", "holds the variables"),
        ):
            if not cluster.count(kind):
                raise refusal(
                    "strategy",
                    f"the cluster of TF_CONFIG has no `{kind}`, which {role}; it has "
                    f"{tasks}",
                    received=repr(name),
                    remedy="Add one, or use `multi_worker_mirrored`.",
                )
    elif name == "multi_worker_mirrored" and cluster.count("ps"):
        raise refusal(
            "strategy",
            f"the cluster of TF_CONFIG has parameter servers: {tasks}",
            received=repr(name),
            remedy="Use `parameter_server`, or leave `ps` out of it.",
        )
    elif name not in GANGS and len(cluster.tasks) > 1:
        raise refusal(
            "strategy",
            f"{name!r} trains in one process, but TF_CONFIG names {len(cluster.tasks)}"
            f": {tasks}",
            remedy="Use `multi_worker_mirrored`, or unset TF_CONFIG.",
        )


def processes(
    name: str, distribution: Mapping[str, Any], cluster: ClusterSpec
) -> tuple[int, int]:
    """Number of workers and of parameter servers: the cluster's, or the settings'."""
    workers = distribution.get("workers")
    if name not in GANGS:
        if (workers or 1) > 1:
            raise refusal(
                "workers",
                f"{name!r} trains in one process",
                received=str(workers),
                remedy="Use `strategy: multi_worker_mirrored`, or remove `workers`.",
            )
        return 1, 0
    if name == "multi_worker_mirrored":
        return cluster.count(*SYNCHRONOUS) or workers or DEFAULT_WORKERS, 0
    servers = distribution.get("parameter_servers") or DEFAULT_PARAMETER_SERVERS
    return (
        cluster.count("worker") or workers or DEFAULT_WORKERS,
        cluster.count("ps") or servers,
    )


def check_min_workers(least: int | None, choice: Choice) -> None:
    """Rejects `min_workers` for a training that cannot go on with fewer workers.

    Args:
      least: `trainer.distribution.min_workers`, if set.
      choice: The strategy of the whole gang.

    Raises:
      UserError: The strategy has no workers that share a batch, or too few of them.
    """
    if least is None:
        return
    if choice.name != "multi_worker_mirrored":
        raise refusal(
            "min_workers",
            f"has no effect under `strategy: {choice.name}`",
            received=str(least),
            remedy="Remove it, or use `multi_worker_mirrored`.",
        )
    if least > choice.workers:
        raise refusal(
            "min_workers",
            f"the gang has only {counted(choice.workers, 'worker')}",
            received=str(least),
            remedy=f"Set it to {choice.workers} or less, or raise `workers`.",
        )


def _check_exchange(choice: Choice, distribution: Mapping[str, Any]) -> None:
    """Rejects NCCL without a GPU."""
    if choice.kind == "GPU":
        return
    communication = distribution.get("communication") or {}
    for name, key, value in (
        ("mirrored", "cross_device_ops", distribution.get("cross_device_ops")),
        (
            "multi_worker_mirrored",
            "communication.implementation",
            communication.get("implementation"),
        ),
    ):
        if choice.name == name and value == "nccl":
            raise refusal(
                key,
                f"NCCL needs GPUs, and {devices.seen(0)}",
                received="'nccl'",
                remedy="Remove it.",
            )


def _cross_device_ops(name: str | None) -> tf.distribute.CrossDeviceOps | None:
    known = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction_to_one": tf.distribute.ReductionToOneDevice,
    }
    return known[name]() if name else None


def _communication(
    distribution: Mapping[str, Any],
) -> tf.distribute.experimental.CommunicationOptions:
    settings = distribution.get("communication") or {}
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=settings.get("bytes_per_pack") or 0,
        timeout_seconds=settings.get("timeout"),
        implementation=(settings.get("implementation") or "auto").upper(),
    )


def _partitioner(
    distribution: Mapping[str, Any], servers: int
) -> tf.distribute.experimental.partitioners.Partitioner | None:
    """The partitioner of large variables over the servers; None for no split."""
    partitioner = (distribution.get("parameter_server") or {}).get(
        "variable_partitioner"
    )
    if not partitioner:
        return None
    size = partitioner.get("min_shard_bytes") or DEFAULT_SHARD_BYTES
    shards = partitioner.get("max_shards") or servers
    kinds = tf.distribute.experimental.partitioners
    if partitioner.get("kind") == "max_size":
        return kinds.MaxSizePartitioner(size, shards)
    return kinds.MinSizePartitioner(size, shards)
