"""The sections `kubeflow` and `vertex`: how a compiled pipeline runs on a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints
from pydantic_core import InitErrorDetails

from strategos.components import node_ids
from strategos.pipeline.config.cluster.types import (
    WORKLOAD,
    ClusterName,
    Cpu,
    Endpoint,
    FolderUrl,
    LabelKey,
    LabelValue,
    Memory,
    MetadataService,
    MountPath,
    Variable,
)
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import reject_at
from strategos.pipeline.config.types import (
    Duration,
    NotNegative,
    PathText,
    Positive,
    Section,
    Text,
    TimeZone,
    seconds,
)

DEFAULT = "default"
"""The name under `steps` for settings of every step."""

KNOWN_STEPS = (DEFAULT, *node_ids.ON_CLUSTER)
"""The names under `steps`, besides the names in `nodes`."""

_DECIMAL = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class Accelerator(Section):
    """GPUs or TPU chips of a step."""

    type: Text = Field(
        description="Kubeflow: the resource, such as `nvidia.com/gpu` or "
        "`google.com/tpu`. Vertex: the accelerator, such as `NVIDIA_L4`."
    )
    count: Positive = Field(1, description="Number of them.")


class Step(Section):
    """Resources, retries and caching of a step."""

    cpu: Cpu | None = Field(None, description="Limit of cores.")
    memory: Memory | None = Field(None, description="Limit of memory.")
    accelerator: Accelerator | None = Field(None, description="GPUs or TPU chips.")
    retries: NotNegative = Field(
        0, description="Number of times that a failed step is started again."
    )
    cache: bool = Field(
        True,
        description="Whether the cluster may reuse the step's earlier outputs; "
        "`run.cache: false` forbids it for all.",
    )

    @property
    def cores(self) -> float | None:
        """`cpu` as a number of cores."""
        if self.cpu is None:
            return None
        milli = self.cpu.endswith("m")
        return int(self.cpu[:-1]) / 1000 if milli else float(self.cpu)

    @property
    def gigabytes(self) -> float | None:
        """`memory` in units of 10**9 bytes."""
        if self.memory is None:
            return None
        binary = self.memory.endswith("i")
        number = self.memory[:-2] if binary else self.memory[:-1]
        power = _DECIMAL[self.memory[len(number)].replace("K", "k")]
        return float(number) * (1024 if binary else 1000) ** power / 1e9


class Toleration(Section):
    """A taint of nodes that steps tolerate."""

    key: LabelKey | None = Field(
        None, description="The taint's key. By default, every taint."
    )
    operator: Literal["Exists", "Equal"] = Field(
        "Exists", description="Whether `value` is compared."
    )
    value: LabelValue | None = Field(None, description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect. By default, every effect."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        if (self.operator == "Equal") != (self.value is not None) or (
            self.operator == "Equal" and self.key is None
        ):
            yield reject_at(
                (),
                "`key` and `value` belong to `operator: Equal`, and only `key` to "
                "`Exists`",
                remedy="Set `operator: Equal` with both, or remove `value`.",
            )


class PodStep(Step):
    """A step of Kubeflow Pipelines, which is a pod."""

    retries: NotNegative = Field(
        0,
        description="Number of times that a failed step is started again. KFP before "
        "2.5 ignores it.",
    )
    timeout: Duration | None = Field(
        None,
        description="Time from the start of the pod after which the step fails. KFP "
        "before 2.1 rejects it.",
    )
    node_selector: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels of the nodes that may run the step."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(strict=False)] = Field(
        (), description="Taints of nodes that the step tolerates."
    )

    @property
    def timeout_seconds(self) -> int | None:
        """`timeout` in seconds; None where it is not set."""
        return None if self.timeout is None else seconds(self.timeout)


class Volume(Section):
    """A PersistentVolumeClaim in each step."""

    claim: ClusterName = Field(description="Name of the PersistentVolumeClaim.")
    path: MountPath = Field(description="Its path in each step.")


class Keys(Section):
    """A Secret or ConfigMap in each step: as variables, as files, or both."""

    name: ClusterName = Field(description="Name of the Secret or the ConfigMap.")
    env: dict[Variable, Text] = Field(
        default_factory=dict,
        description="Environment variables, each with the key that holds its value.",
    )
    path: MountPath | None = Field(
        None, description="Folder in each step with a file per key."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        if not self.env and not self.path:
            remedy = "Set `env` or `path`."
            yield reject_at((), "no step would see it", remedy=remedy)


def shared_paths(*mounted: Volume | Keys) -> Iterator[InitErrorDetails]:
    """Yields an error if two volumes, secrets or config maps have one mount path."""
    paths = Counter(each.path for each in mounted if each.path)
    twice = [path for path, n in paths.items() if n > 1]
    if twice:
        yield reject_at(
            (),
            f"two volumes, secrets or config maps have the path {twice[0]}",
            remedy="Give each a path of its own.",
        )


_StepT = TypeVar("_StepT", bound=Step)


def _merged(steps: dict[str, _StepT], node: str, empty: _StepT) -> _StepT:
    base, own = steps.get(DEFAULT, empty), steps.get(node, empty)
    set_here = {name: getattr(own, name) for name in own.model_fields_set}
    return base.model_copy(update=set_here)


_STEPS = (
    "Settings of single steps, by the name of the node, such as `Trainer`; "
    "those of `default` hold for all others."
)
_CONTEXT = (
    f"Folder that the image contains as `{WORKLOAD}`, with the modules (unless "
    "`modules` is set), the schema and the data."
)
_MODULES = (
    "URL of a folder, `s3://…` or `gs://…`. `compile`, `run` and `schedule create` "
    "upload the user's modules there, and steps download them. By default, steps use "
    "those in the image."
)


class Kubeflow(Section):
    """Settings of `compile`, `run` and `schedule` for Kubeflow Pipelines."""

    image: Text = Field(description="Container image that holds Strategos.")
    endpoint: Endpoint | None = Field(
        None,
        description="URL of KFP's API, for `run` and `schedule`. By default, that in "
        "the environment variable `KF_PIPELINES_ENDPOINT`.",
    )
    metadata: MetadataService | None = Field(
        None,
        description="Address of KFP's ML Metadata, to be read for the table of `run "
        "--wait` instead of the records of steps in `root`.",
    )
    namespace: ClusterName | None = Field(
        None, description="Namespace of the runs, if KFP serves several users."
    )
    service_account: ClusterName | None = Field(
        None, description="Service account of the steps. By default, KFP's own."
    )
    timezone: TimeZone = Field(
        "UTC",
        description="Time zone in which KFP reads all schedules: "
        "`CRON_SCHEDULE_TIMEZONE` of its deployments.",
    )
    root: Annotated[
        str,
        StringConstraints(pattern="^(minio|s3|gs)://[^/]+"),
        Allowed("minio://BUCKET/FOLDER, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"),
    ] = Field("minio://mlpipeline/v2/artifacts", description="URL of the artifacts.")
    context: PathText = Field(".", validate_default=True, description=_CONTEXT)
    modules: FolderUrl | None = Field(None, description=_MODULES)
    steps: dict[str, PodStep] = Field(default_factory=dict, description=_STEPS)
    volumes: Annotated[tuple[Volume, ...], Field(strict=False)] = Field(
        (), description="PersistentVolumeClaims in each step, as `{claim, path}`."
    )
    secrets: Annotated[tuple[Keys, ...], Field(strict=False)] = Field(
        (),
        description="Secrets in each step, as `{name, env, path}`: environment "
        "variables by key, a folder with a file per key, or both.",
    )
    config_maps: Annotated[tuple[Keys, ...], Field(strict=False)] = Field(
        (), description="ConfigMaps in each step, in the form of `secrets`."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When nodes pull the image. By default, the cluster's rule."
    )
    image_pull_secrets: Annotated[tuple[ClusterName, ...], Field(strict=False)] = Field(
        (), description="Secrets with the credentials of the image's registry."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        return shared_paths(*self.volumes, *self.secrets, *self.config_maps)

    def step(self, node: str) -> PodStep:
        """The settings of a step: its own ones override `default`."""
        return _merged(self.steps, node, PodStep())

    @property
    def mounts(self) -> tuple[str, ...]:
        """Folders that every step sees at the same path, and that outlive it."""
        return tuple(volume.path for volume in self.volumes)


class Vertex(Section):
    """Settings of `compile`, `run` and `schedule` for Vertex AI Pipelines."""

    project: Text = Field(description="Google Cloud project.")
    region: Text = Field("us-central1", description="Google Cloud region.")
    image: Text = Field(description="Container image that holds Strategos.")
    root: Annotated[
        str, StringConstraints(pattern="^gs://[^/]+"), Allowed("gs://BUCKET/FOLDER")
    ] = Field(description="URL of the artifacts.")
    endpoint: Endpoint | None = Field(
        None, description="URL of the service. By default, Google's in the region."
    )
    service_account: Text | None = Field(
        None,
        description="E-mail address of the steps' service account. By default, "
        "Compute Engine's.",
    )
    context: PathText = Field(".", validate_default=True, description=_CONTEXT)
    modules: FolderUrl | None = Field(None, description=_MODULES)
    steps: dict[str, Step] = Field(default_factory=dict, description=_STEPS)

    def step(self, node: str) -> Step:
        """The settings of a step: its own ones override `default`."""
        return _merged(self.steps, node, Step())

    @property
    def mounts(self) -> tuple[str, ...]:
        """Folders that every step sees: Vertex mounts buckets under `/gcs`."""
        return ("/gcs",)
