"""The section `trainer.distribution`: devices and processes that train the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from strategos.components.errors import required
from strategos.components.trainer.distribution.strategy import (
    DEFAULT_PARAMETER_SERVERS,
    DEFAULT_WORKERS,
    StrategyName,
)
from strategos.components.trainer.launchers import LAUNCHERS
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.wording import counted, listed
from strategos.pipeline.config.cluster.batch_systems import PodJob, Slurm, VertexJob
from strategos.pipeline.config.cluster.sections import Kubeflow, Vertex
from strategos.pipeline.config.plugins import (
    named,
    settings_problems,
    valid_settings,
)
from strategos.pipeline.config.problems import reject_at
from strategos.pipeline.config.types import (
    Duration,
    Hyperparameters,
    NotNegative,
    Positive,
    Rate,
    Section,
    Size,
    rate,
    seconds,
    size,
)


class Communication(Section):
    """How workers exchange gradients."""

    implementation: Literal["auto", "ring", "nccl"] = Field(
        "auto",
        description="Collectives: `ring` works everywhere, `nccl` needs GPUs.",
    )
    bytes_per_pack: Size | None = Field(
        None, description="Size of the packs in which gradients are exchanged."
    )
    timeout: Duration | None = Field(
        None, description="Time after which an unfinished exchange of gradients fails."
    )


class Tpu(Section):
    """Address of the TPU, if the environment does not name it."""

    name: str | None = Field(None, description="Name of the TPU, or its gRPC address.")
    zone: str | None = Field(None, description="Google Cloud zone of the TPU.")
    project: str | None = Field(None, description="Google Cloud project of the TPU.")


class VariablePartitioner(Section):
    """How large variables are sharded over the parameter servers."""

    kind: Literal["min_size", "max_size"] = Field(
        "min_size",
        description="`min_size`: up to `max_shards` shards, none smaller than "
        "`min_shard_bytes`. `max_size`: as few shards as possible, none larger.",
    )
    min_shard_bytes: Size = Field(
        "256KiB", description="Smallest or largest size of a shard, see `kind`."
    )
    max_shards: Positive | None = Field(
        None,
        description="Largest number of shards. By default, one per parameter server.",
    )


class ParameterServer(Section):
    """Settings for `strategy: parameter_server` only."""

    variable_partitioner: VariablePartitioner | None = Field(
        None, description="How large variables are sharded. Without it, none is."
    )


_UNDER = {
    "workers": ("multi_worker_mirrored", "parameter_server"),
    "min_workers": ("multi_worker_mirrored",),
    "parameter_servers": ("parameter_server",),
    "parameter_server": ("parameter_server",),
    "communication": ("multi_worker_mirrored", "auto"),
    "cross_device_ops": ("mirrored", "auto"),
    "tpu": ("tpu", "auto"),
    "shard": ("multi_worker_mirrored", "auto"),
}
"""Keys that have an effect under some strategies only, with those strategies."""

_PLAIN = ("devices", "cross_device_ops", "tpu", "shard")
"""Keys with values that reach the Trainer unchanged."""

_JOBS = ("slurm", "kubernetes", "tfjob", "vertex")
"""Launchers that submit jobs; the key of the same name has the jobs' settings."""

_SHORTEST_STALL = 15  # seconds

_GANGS = ("multi_worker_mirrored", "parameter_server", "auto")


class Distribution(Section):
    """Devices and processes that train the model."""

    strategy: StrategyName = Field(
        "auto",
        description="`auto` chooses from the environment: a TPU or a cluster if it "
        "names one, else all GPUs, else one device.",
    )
    workers: Positive | None = Field(
        None,
        description="Number of processes that compute gradients under "
        "`multi_worker_mirrored` and `parameter_server`. By default 2.",
    )
    parameter_servers: Positive | None = Field(
        None,
        description="Number of processes that hold variables under "
        "`parameter_server`. By default 1.",
    )
    devices: Positive | None = Field(
        None,
        description="Devices per process. By default, all visible GPUs. Without a "
        "GPU, the CPU is divided into this number of logical devices.",
    )
    communication: Communication = Field(
        default_factory=Communication, description="How workers exchange gradients."
    )
    cross_device_ops: (
        Literal["nccl", "hierarchical_copy", "reduction_to_one"] | None
    ) = Field(
        None,
        description="How the devices of one process exchange gradients under "
        "`mirrored`. By default, TensorFlow chooses.",
    )
    tpu: Tpu = Field(
        default_factory=Tpu,
        description="Address of the TPU, if the environment does not name it.",
    )
    parameter_server: ParameterServer = Field(
        default_factory=ParameterServer,
        description="Settings for `strategy: parameter_server` only.",
    )
    shard: Literal["rows", "files"] = Field(
        "rows",
        description="`rows`: a global batch has the same rows for any number of "
        "workers. `files`: each worker reads only its own files; less I/O, but the "
        "loss curve no longer equals that of one device.",
    )
    launcher: Annotated[str, named(LAUNCHERS)] = Field(
        Operation.launcher,
        description="; ".join(
            f"`{name}` {LAUNCHERS[name].description}" for name in LAUNCHERS.own
        )
        + ".",
    )
    settings: Hyperparameters = Field(
        default_factory=dict,
        description="Settings of a launcher that is a plug-in, as it declares them.",
    )
    slurm: Slurm = Field(
        default_factory=Slurm, description="Settings for `launcher: slurm` only."
    )
    kubernetes: PodJob = Field(
        default_factory=PodJob, description="Settings for `launcher: kubernetes` only."
    )
    tfjob: PodJob = Field(
        default_factory=PodJob, description="Settings for `launcher: tfjob` only."
    )
    vertex: VertexJob = Field(
        default_factory=VertexJob, description="Settings for `launcher: vertex` only."
    )
    start_timeout: Duration = Field(
        f"{Operation.start_timeout:g}s",
        description="Time allowed for all processes to join and finish their "
        "first step.",
    )
    stall_timeout: Duration = Field(
        f"{Operation.stall_timeout:g}s",
        description="Time without a step after which training is restarted, at least "
        f"{_SHORTEST_STALL}s.",
    )
    max_restarts: NotNegative = Field(
        Operation.max_restarts,
        description="Number of times in a row that one run restarts a failed training "
        "which has got no further since the last failure.",
    )
    min_workers: Positive | None = Field(
        None,
        description="Number of workers with which a training under "
        "`multi_worker_mirrored` goes on after it has lost others for good, until they "
        "return. By default, it needs all of them.",
    )
    bandwidth: Rate | None = Field(
        None,
        description="Network bandwidth between workers, from which `strategos explain "
        "distribution` estimates the time of an exchange.",
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        yield from self._misplaced()
        if self.strategy == "one_device" and (self.devices or 1) > 1:
            message = f"`one_device` trains on one device, not on {self.devices}"
            remedy = "Use `strategy: mirrored`, or remove `devices`."
            yield reject_at(("devices",), message, remedy=remedy)
        if self.launched_by.hosts_join and self.strategy not in _GANGS:
            message = f"`{self.strategy}` has no workers to wait for"
            remedy = "Use `launcher: local`, or a strategy with workers."
            yield reject_at(("launcher",), message, remedy=remedy)
        if self.min_workers:
            yield from self._inelastic(self.min_workers)
        for name in _JOBS:
            if self._given(name) and self.launcher != name:
                message = f"has no effect under `launcher: {self.launcher}`"
                remedy = f"Remove it, or use `launcher: {name}`."
                yield reject_at((name,), message, remedy=remedy)
        model = self.launched_by.settings
        yield from settings_problems(model, self.settings, ("settings",))
        if self.pods and not self.pods.image:
            message = "is missing, and names the image of the pods"
            remedy = "Set `image: REGISTRY/NAME:TAG`, an image with Strategos."
            yield reject_at((self.launcher, "image"), message, remedy=remedy)
        if self.launcher == "vertex":
            yield from self._machine_problems()
        if seconds(self.stall_timeout) < _SHORTEST_STALL:
            message = "a process that works sends a heartbeat only every five seconds"
            remedy = f"Set it to {_SHORTEST_STALL}s or more."
            yield reject_at(("stall_timeout",), message, remedy=remedy)

    def _misplaced(self) -> Iterator[InitErrorDetails]:
        """Yields an error for each key that has no effect under the strategy."""
        for key, strategies in _UNDER.items():
            if not self._given(key) or self.strategy in strategies:
                continue
            message = f"has no effect under `strategy: {self.strategy}`"
            remedy = f"Remove it, or use `strategy: {strategies[0]}`."
            if key == "tpu" and self.strategy == "multi_worker_mirrored":
                message = "a TPU does not train under `multi_worker_mirrored`"
                remedy = (
                    "Use `strategy: tpu`: it uses all cores of all the TPU's hosts."
                )
            yield reject_at((key,), message, remedy=remedy)

    def _inelastic(self, least: int) -> Iterator[InitErrorDetails]:
        """Yields an error for each setting that `min_workers` contradicts."""
        where = ("min_workers",)
        workers = self.workers or DEFAULT_WORKERS
        known = self.workers or not self.launched_by.hosts_join
        if known and least > workers:
            message = f"the gang has only {counted(workers, 'worker')} (`workers`)"
            remedy = f"Set it to {workers} or less, or raise `workers`."
            yield reject_at(where, message, received=str(least), remedy=remedy)
        if why := self.launched_by.fixed_size:
            message = f"`launcher: {self.launcher}` cannot lose a worker: {why}"
            elastic = (x for x in LAUNCHERS.own if not LAUNCHERS[x].fixed_size)
            use = listed([f"`launcher: {name}`" for name in elastic], "or")
            yield reject_at(where, message, remedy=f"Remove it, or use {use}.")
        if self.shard == "files":
            message = "has no effect under `shard: files`: each worker has its own rows"
            remedy = "Remove it, or use `shard: rows`."
            yield reject_at(where, message, remedy=remedy)
        if not self.max_restarts:
            message = "has no effect under `max_restarts: 0`"
            yield reject_at(where, message, remedy="Allow 1 restart or more.")

    def _machine_problems(self) -> Iterator[InitErrorDetails]:
        """Yields an error for each device of Vertex AI that is missing or unused."""
        accelerator, strategy = self.vertex.accelerator, self.strategy
        machine, where = self.vertex.machine_type, ("vertex", "machine_type")
        if strategy == "tpu" and not self.vertex.has_tpu:
            remedy = "Use one with a TPU, such as `ct5lp-hightpu-4t`."
            yield reject_at(where, f"`{machine}` has no TPU", remedy=remedy)
        elif self.vertex.has_tpu and strategy not in ("tpu", "auto"):
            message = (
                f"`{machine}` has a TPU, which `strategy: {strategy}` does not use"
            )
            yield reject_at(where, message, remedy="Use `strategy: tpu`.")
        if accelerator and accelerator.count > 1 and strategy == "one_device":
            message = f"{accelerator.count} GPUs, of which `one_device` uses one"
            remedy = "Set `count: 1`, or use `strategy: mirrored`."
            yield reject_at(("vertex", "accelerator"), message, remedy=remedy)
        elif accelerator and self.devices and self.devices > accelerator.count:
            message = f"each task has {accelerator.count} {accelerator.type}"
            remedy = "Use fewer, or raise `vertex.accelerator.count`."
            yield reject_at(("devices",), message, remedy=remedy)

    def job(
        self, kubeflow: Kubeflow | None = None, vertex: Vertex | None = None
    ) -> dict[str, Any]:
        """The settings of the launcher's jobs, with times in seconds.

        Args:
          kubeflow: The section of this name, if there is one.
          vertex: The section of this name; required for `launcher: vertex`.
        """
        if self.launcher not in _JOBS:
            return valid_settings(self.launched_by.settings, self.settings)
        if self.pods:
            return self.pods.operation(kubeflow)
        if self.launcher == "vertex":
            return self.vertex.operation(required(vertex))
        return self.slurm.operation()

    def _given(self, key: str) -> bool:
        default = type(self).model_fields[key].get_default(call_default_factory=True)
        return getattr(self, key) != default

    def for_results(self) -> dict[str, Any]:
        """The settings that change results, without those at their defaults.

        Sizes are in bytes, times in seconds.
        """
        settings: dict[str, Any] = {"strategy": self.strategy}
        if self.strategy in _UNDER["workers"]:
            settings["workers"] = self.workers or DEFAULT_WORKERS
        if self.strategy == "parameter_server":
            settings["parameter_servers"] = (
                self.parameter_servers or DEFAULT_PARAMETER_SERVERS
            )
        if self._given("parameter_server"):
            settings["parameter_server"] = self._parameter_server()
        if self._given("communication"):
            settings["communication"] = self._communication()
        others = set(filter(self._given, _PLAIN))
        return settings | self.model_dump(
            mode="json", include=others, exclude_none=True
        )

    def _parameter_server(self) -> dict[str, Any]:
        plain = self.parameter_server.model_dump(mode="json", exclude_none=True)
        partitioner = plain["variable_partitioner"]
        partitioner["min_shard_bytes"] = size(partitioner["min_shard_bytes"])
        return plain

    def _communication(self) -> dict[str, Any]:
        plain = self.communication.model_dump(mode="json", exclude_none=True)
        if "bytes_per_pack" in plain:
            plain["bytes_per_pack"] = size(plain["bytes_per_pack"])
        if "timeout" in plain:
            plain["timeout"] = float(seconds(plain["timeout"]))
        return plain

    @property
    def known_replicas(self) -> int:
        """Replicas that share a global batch, as far as the settings determine it."""
        workers = 1
        if self.strategy == "multi_worker_mirrored":
            unknown = self.launched_by.hosts_join
            workers = self.workers or (1 if unknown else DEFAULT_WORKERS)
        return workers * (self.devices or 1)

    @property
    def pods(self) -> PodJob | None:
        """The settings of the launcher's pods; None for one without pods."""
        pods = {"kubernetes": self.kubernetes, "tfjob": self.tfjob}
        return pods.get(self.launcher)

    @property
    def stages(self) -> bool:
        """Whether the launcher's machines may share no more than a store with it."""
        return self.pods is not None or self.launcher == "vertex"

    @property
    def launched_by(self) -> Launcher:
        """The launcher: its properties describe the processes that train."""
        return LAUNCHERS[self.launcher]

    @property
    def bytes_per_second(self) -> float | None:
        """`bandwidth` in bytes a second; None where it is not set."""
        return None if self.bandwidth is None else rate(self.bandwidth)
