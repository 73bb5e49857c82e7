"""The sections of `trainer.distribution` for training as a job of a batch system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints
from pydantic_core import InitErrorDetails

from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.launchers.jobs.vertex import custom_job
from strategos.pipeline.config.cluster.sections import (
    Accelerator,
    Keys,
    Kubeflow,
    Vertex,
    Volume,
    shared_paths,
)
from strategos.pipeline.config.cluster.types import (
    WORKLOAD,
    ClusterName,
    Cpu,
    FolderOrUrl,
    Memory,
)
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import reject, reject_at
from strategos.pipeline.config.types import Duration, Section, Text, seconds

# Options of sbatch that `components/trainer/launchers/slurm.py` sets for each job.
_RESERVED = (
    "account",
    "array",
    "chdir",
    "dependency",
    "error",
    "job-name",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "output",
    "partition",
    "requeue",
    "time",
    "wait",
    "wrap",
)


def _option(text: str) -> str:
    name = text.partition("=")[0].removeprefix("--").removeprefix("no-")
    if name in _RESERVED:
        remedy = "Remove it; trainer.distribution has the settings of a job."
        raise reject(f"Strategos itself sets --{name} for each job", remedy=remedy)
    return text


Option = Annotated[
    str,
    StringConstraints(pattern=r"^--[a-z][a-z0-9-]*(=[^\n]*)?$"),
    Allowed("options of sbatch in their long form, such as --gres=gpu:2"),
    AfterValidator(_option),
]


class Slurm(Section):
    """Settings for `launcher: slurm` only."""

    partition: str | None = Field(
        None, min_length=1, description="Partition. By default, the cluster's default."
    )
    account: str | None = Field(
        None, min_length=1, description="Account that is charged for the job."
    )
    time_limit: Duration | None = Field(
        None,
        description="Time limit of one job, rounded up to minutes. A job whose time is "
        "up is followed by another one, which resumes from the last checkpoint. By "
        "default, the partition's limit.",
    )
    pending_timeout: Duration = Field(
        "1d", description="Time allowed for a job to wait in Slurm's queue."
    )
    options: Annotated[tuple[Option, ...], Field(strict=False)] = Field(
        (),
        description="Further options of sbatch, in their long form: "
        "`[--gres=gpu:2, --exclusive]`.",
    )

    def operation(self) -> dict[str, Any]:
        """The settings with times in seconds."""
        return _in_seconds(self.model_dump(mode="json"))


class PodJob(Section):
    """Settings for `launcher: kubernetes` or `launcher: tfjob` only."""

    image: str | None = Field(
        None, min_length=1, description="Image of the pods, with Strategos. Required."
    )
    namespace: ClusterName | None = Field(
        None,
        description="Namespace of the job. By default, that of the launching pod, or "
        "of kubeconfig's current context.",
    )
    service_account: ClusterName | None = Field(
        None, description="Service account of the pods; they need no rights."
    )
    volumes: Annotated[tuple[Volume, ...], Field(strict=False)] = Field(
        (),
        description="PersistentVolumeClaims in each pod, as `{claim, path}`, at the "
        "same paths as where the Trainer runs.",
    )
    secrets: Annotated[tuple[Keys, ...], Field(strict=False)] = Field(
        (),
        description="Secrets in each pod, as `{name, env, path}`, such as the "
        "credentials of an object store.",
    )
    config_maps: Annotated[tuple[Keys, ...], Field(strict=False)] = Field(
        (), description="ConfigMaps in each pod, in the form of `secrets`."
    )
    folder: FolderOrUrl | None = Field(
        None,
        description="URL, or folder on one of `volumes`, for checkpoints and copies of "
        "the training data. By default, `run.root` must be a URL or on one of "
        "`volumes`.",
    )
    cpu: Cpu | None = Field(None, description="Cores of each pod.")
    memory: Memory | None = Field(None, description="Memory of each pod.")
    accelerator: Accelerator | None = Field(
        None, description="GPUs of each pod, as `{type: nvidia.com/gpu, count: 1}`."
    )
    time_limit: Duration | None = Field(
        None,
        description="Time limit of one job. A job whose time is up is followed by "
        "another one, which resumes from the last checkpoint.",
    )
    pending_timeout: Duration = Field(
        "30m",
        description="Time allowed for the pods to be scheduled and their image to be "
        "pulled.",
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        yield from shared_paths(*self.volumes, *self.secrets, *self.config_maps)
        folder, mounts = self.folder, [each.path for each in self.volumes]
        if not folder or is_remote(folder):
            return
        if not any(Path(folder).is_relative_to(path) for path in mounts):
            yield reject_at(
                (),
                f"`folder: {folder}` is on no volume of the pods",
                expected=f"a folder below {' or '.join(mounts)}" if mounts else "",
                remedy="Use a URL such as s3://BUCKET/FOLDER; or add the volume: "
                "`volumes: [{claim: NAME, path: /mnt/NAME}]`.",
            )

    def operation(self, service: Kubeflow | None) -> dict[str, Any]:
        """The settings with times in seconds.

        Args:
          service: The section `kubeflow`; its `context` is in the image.
        """
        plain = _in_seconds(self.model_dump(mode="json"))
        names = ("context", "modules")
        shared = {name: getattr(service, name, None) for name in names}
        return {**plain, **shared, "workload": WORKLOAD}


class VertexJob(Section):
    """Settings for `launcher: vertex` only."""

    image: str | None = Field(
        None,
        min_length=1,
        description="Image of the containers, with Strategos and the user's modules. "
        "By default, `vertex.image`.",
    )
    machine_type: Text = Field(
        "n1-standard-4",
        description="Machine of each task, such as `n1-standard-8` or `g2-standard-8`; "
        "for `strategy: tpu` one with a TPU, such as `ct5lp-hightpu-4t`.",
    )
    accelerator: Accelerator | None = Field(
        None, description="GPUs of each task, as `{type: NVIDIA_L4, count: 1}`."
    )
    time_limit: Duration | None = Field(
        None,
        description="Time limit of one custom job. A job whose time is up is followed "
        "by another one, which resumes from the last checkpoint. By default 7d, Vertex "
        "AI's own.",
    )
    pending_timeout: Duration = Field(
        "1h", description="Time allowed for a job to wait for machines."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        machine = f"`machine_type: {self.machine_type}`"
        try:
            is_tpu = self.has_tpu
        except ValueError:
            expected = "such as ct5lp-hightpu-1t, -4t or -8t"
            yield reject_at((), f"{machine} is no TPU of one host", expected=expected)
            return
        if is_tpu and self.accelerator:
            message = f"{machine} has a TPU and no GPUs"
            yield reject_at((), message, remedy="Remove `accelerator`.")

    @property
    def has_tpu(self) -> bool:
        """Whether the machines have a TPU."""
        return bool(custom_job.topology(self.machine_type))

    def operation(self, service: Vertex) -> dict[str, Any]:
        """The settings with times in seconds.

        Args:
          service: The section `vertex`.
        """
        shared = ("project", "region", "endpoint", "service_account")
        plain = _in_seconds(self.model_dump(mode="json"))
        settings = service.model_dump(
            mode="json", include={*shared, "context", "modules"}
        )
        image = self.image or service.image
        places = {"folder": None, "workload": WORKLOAD}
        return {**plain, **settings, **places, "image": image}


def _in_seconds(plain: dict[str, Any]) -> dict[str, Any]:
    times = {key: plain[key] for key in ("time_limit", "pending_timeout")}
    return plain | {k: text and float(seconds(text)) for k, text in times.items()}
