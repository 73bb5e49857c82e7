"""The section `run`: root, ML Metadata, runner and engine of a pipeline's runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from strategos.components.files.filesystems import is_remote
from strategos.components.limits import control_groups
from strategos.components.shards.beam_engine import ENGINES
from strategos.components.shards.engine import Engine as Settings
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.plugins import (
    named,
    settings_problems,
    valid_settings,
)
from strategos.pipeline.config.problems import reject, reject_at
from strategos.pipeline.config.types import (
    PASSWORD_VARIABLE,
    SERVERS,
    Database,
    Duration,
    Hyperparameters,
    NotNegative,
    PathText,
    Positive,
    Section,
    Size,
    seconds,
    size,
)

Project = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][-a-z0-9:.]*[a-z0-9]$"),
    Allowed("the ID of a Google Cloud project"),
]
Region = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+(-[a-z]+)+[0-9]+$"),
    Allowed("a region, such as europe-west4"),
]
Bucket = Annotated[
    str,
    StringConstraints(pattern=r"^gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/\S+$"),
    Allowed("gs://BUCKET/FOLDER"),
]
Image = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s/]+(/[^\s/]+)+$"),
    Allowed("REGISTRY/IMAGE:TAG"),
]
Address = Annotated[
    str, StringConstraints(pattern=r"^[^\s:/]+:[0-9]{1,5}$"), Allowed("HOST:PORT")
]

_OF_DATAFLOW = ("project", "region", "temp_location", "image")
_UNDER = {
    "job_endpoint": ("portable", "spark"),
    **dict.fromkeys(
        ("master", "local_cluster", "timeout", "stall_timeout"), ("flink",)
    ),
    **dict.fromkeys(_OF_DATAFLOW, ("dataflow",)),
}
"""The runners that each option belongs to."""
_NEEDED = {
    **dict.fromkeys(_UNDER["job_endpoint"], ("job_endpoint",)),
    "dataflow": _OF_DATAFLOW,
}
"""The options without which a runner cannot run."""


class LocalCluster(Section):
    """A Flink cluster that a run starts on this machine, and ends."""

    taskmanagers: Positive = Field(
        Settings.taskmanagers,
        description="`flink`: number of TaskManagers, which share the workers.",
    )


class Options(Section):
    """Options of the runner; each one belongs to the runners that it names."""

    master: Address | None = Field(
        None,
        description="`flink`: address of the REST API of a cluster's JobManager. By "
        "default, the run starts a cluster on this machine, and ends it.",
    )
    local_cluster: LocalCluster | None = Field(
        None, description="`flink`: the cluster that a run starts without `master`."
    )
    timeout: Duration | None = Field(
        None,
        description="`flink`: time allowed for one job, of which a node runs one to "
        "five. By default, no limit.",
    )
    stall_timeout: Duration | None = Field(
        None,
        description="`flink`: time without progress (no task starts or ends, no row "
        f"moves) after which a job is cancelled; {Settings.stall_timeout / 60:g}m by "
        "default.",
    )
    job_endpoint: Address | None = Field(
        None,
        description="`spark`, `portable`: address of the Beam job server, as this "
        "machine or the steps of a compiled pipeline see it. Required there.",
    )
    project: Project | None = Field(
        None, description="`dataflow`: Google Cloud project. Required there."
    )
    region: Region | None = Field(
        None, description="`dataflow`: region of the workers. Required there."
    )
    temp_location: Bucket | None = Field(
        None,
        description="`dataflow`: folder for temporary files. Required there.",
    )
    image: Image | None = Field(
        None,
        description="`dataflow`: container image of the workers, which holds Strategos "
        "and the modules. Required there.",
    )


class Engine(Section):
    """The engine for the work on data; every engine gives the same results."""

    runner: Annotated[str, named(ENGINES)] = Field(
        Settings.runner,
        description="`direct`: threads of the executor's process, and helpers that it "
        "starts for work of some seconds. `flink`: a Flink cluster. `spark`: Beam's "
        "Spark job server. `portable`: another Beam job server. Workers of the last "
        "three see the same files (a shared folder, or an object store) and the same "
        "Python environment as this machine or the steps of a compiled pipeline, which "
        "run all but `flink`. `dataflow`: Google Cloud Dataflow, for data and root on "
        "gs://; nothing has run on the service yet.",
    )
    workers: Positive | None = Field(
        Settings.workers,
        description="Number of shards worked on at a time. By default, one for each "
        "core that the process may use (affinity and control groups are respected); "
        "for `spark`, `portable` and `dataflow`, what the runner has.",
    )
    options: Options = Field(
        default_factory=Options, description="Options of the runner."
    )
    settings: Hyperparameters = Field(
        default_factory=dict,
        description="Settings of a runner that is a plug-in, as it declares them.",
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        yield from self._misplaced()
        yield from self._missing()
        yield from settings_problems(self._declared, self.settings, ("settings",))

    def _misplaced(self) -> Iterator[InitErrorDetails]:
        for name, runners in _UNDER.items():
            if getattr(self.options, name) is not None and self.runner not in runners:
                fitting = " or ".join(f"`runner: {runner}`" for runner in runners)
                yield reject_at(
                    ("options", name),
                    f"has no effect under `runner: {self.runner}`",
                    remedy=f"Remove it, or use {fitting}.",
                )
        if self.options.master and self.options.local_cluster:
            yield reject_at(
                ("options", "local_cluster"),
                "has no effect beside `master`",
                remedy="Remove one of them.",
            )

    def _missing(self) -> Iterator[InitErrorDetails]:
        for name in _NEEDED.get(self.runner, ()):
            if getattr(self.options, name) is None:
                yield reject_at(
                    ("options", name),
                    f"is required under `runner: {self.runner}`",
                    remedy=f"Add `--set run.engine.options.{name}=…`.",
                )

    @property
    def _declared(self) -> type[BaseModel] | None:
        """The model of `settings`; ours, which are slow to import, have none."""
        is_ours = self.runner in ENGINES.own
        return None if is_ours else ENGINES[self.runner].settings

    def to_engine(self, memory: int | None = None) -> Settings:
        """The settings that executors receive.

        Args:
          memory: Bytes that the run may take; None where nobody knows.
        """
        options = self.options.model_dump(exclude={"local_cluster"}, exclude_none=True)
        for name in {"timeout", "stall_timeout"} & options.keys():
            options[name] = float(seconds(options[name]))
        cluster = self.options.local_cluster or LocalCluster()
        return Settings(
            runner=self.runner,
            workers=self.workers,
            memory=memory,
            settings=valid_settings(self._declared, self.settings),
            taskmanagers=cluster.taskmanagers,
            **options,
        )


class Run(Section):
    """Where and how the pipeline runs."""

    root: PathText = Field(
        "runs",
        description="Folder for artifacts, logs and ML Metadata; or `gs://…` or "
        "`s3://…` for artifacts only, with `metadata` on a server.",
        validate_default=True,
    )
    runner: Literal["local", "beam"] = Field(
        "local",
        description="`local` starts one warm executor process; `beam` is TFX's "
        "BeamDagRunner.",
    )
    engine: Engine = Field(
        default_factory=Engine,
        description="What works on the data; every engine gives the same results.",
    )
    metadata: Database = Field(
        "sqlite",
        description="ML Metadata: `sqlite` (a file under `root`) or the URL of a "
        f"server; its password is read from {PASSWORD_VARIABLE}.",
        validate_default=True,
    )
    metadata_timeout: Duration = Field(
        "2m",
        description="Time that a started run waits for a server of `metadata` that "
        "does not answer.",
    )
    retries: NotNegative = Field(
        0,
        description="Number of times that a node is started again after a reason that "
        "may pass: a full disk, a database or an object store that does not answer. "
        "Never after an error of settings, data or code. Pauses double from 1 s to "
        "1 min. Steps on a cluster have `steps.NAME.retries`.",
    )
    memory: Size | None = Field(
        None,
        description="Memory that all processes of a run on this machine may take "
        "together; a run that takes more fails with the figures. By default, three "
        "quarters of the memory of the machine, or of its control group.",
    )
    cache: bool = Field(
        True, description="Whether unchanged nodes reuse their earlier outputs."
    )
    report: bool = Field(
        True,
        description="Whether the page of `strategos report` is written after each run, "
        "and without values of the data beside a pushed model; never under "
        "`strategos dev`.",
    )

    @field_validator("metadata")
    @classmethod
    def _in_reach(cls, metadata: str, info: ValidationInfo) -> str:
        root = info.data.get("root", "")
        if metadata == "sqlite" and is_remote(root):
            raise reject(
                f"SQLite cannot be kept under the remote root {root}",
                expected=SERVERS,
                remedy="Set it to a server, or set `run.root` to a local folder.",
            )
        return metadata

    @property
    def metadata_timeout_seconds(self) -> int:
        """`metadata_timeout` in seconds."""
        return seconds(self.metadata_timeout)

    @property
    def memory_bytes(self) -> int:
        """`memory` in bytes."""
        if self.memory is None:
            return control_groups.memory() * 3 // 4
        return size(self.memory)
