"""The section `run.engine`: what works on the data, never what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import InitErrorDetails

from strategos.components.shards.engine import Engine as Settings
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import raise_all, reject_at
from strategos.pipeline.config.types import (
    Duration,
    Positive,
    Section,
    not_yet,
    seconds,
)

Address = Annotated[
    str, StringConstraints(pattern=r"^[^\s:/]+:[0-9]{1,5}$"), Allowed("HOST:PORT")
]

_UNDER = {
    "job_endpoint": "portable",
    **dict.fromkeys(("master", "local_cluster", "timeout", "stall_timeout"), "flink"),
}
"""The runner that each option belongs to."""
_NEEDED = {"portable": "job_endpoint"}
"""The option without which a runner cannot run."""


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
        None, description="`portable`: address of the Beam job server. Required there."
    )


class Engine(Section):
    """What works on the data; every engine gives the same results."""

    runner: Annotated[
        Literal["direct", "flink", "portable"],
        not_yet(
            ("dataflow",),
            "workers of Dataflow do not see the folders that data are read from; use "
            "`flink` on machines that do.",
        ),
        not_yet(
            ("spark",),
            "use `portable`, with the address of Beam's Spark job server in "
            "`options.job_endpoint`.",
        ),
    ] = Field(
        "direct",
        description="`direct`: threads of the executor's process. `flink`: a Flink "
        "cluster. `portable`: a runner behind a Beam job server. Workers of the last "
        "two see the same files and the same Python environment as this machine.",
    )
    workers: Positive | None = Field(
        None,
        description="Number of shards worked on at a time. By default, one for each "
        "core that the process may use (affinity and control groups are respected); "
        "for `portable`, what the runner has.",
    )
    options: Options = Field(
        default_factory=Options, description="Options of the runner."
    )

    @model_validator(mode="after")
    def _fits_runner(self) -> Engine:
        errors = [*self._misplaced(), *self._missing()]
        if errors:
            raise_all(errors)
        return self

    def _misplaced(self) -> Iterator[InitErrorDetails]:
        for name, runner in _UNDER.items():
            if getattr(self.options, name) is not None and self.runner != runner:
                yield reject_at(
                    ("options", name),
                    f"has no effect under `runner: {self.runner}`",
                    remedy=f"Remove it, or use `runner: {runner}`.",
                )
        if self.options.master and self.options.local_cluster:
            yield reject_at(
                ("options", "local_cluster"),
                "has no effect beside `master`",
                remedy="Remove one of them.",
            )

    def _missing(self) -> Iterator[InitErrorDetails]:
        name = _NEEDED.get(self.runner)
        if name and getattr(self.options, name) is None:
            yield reject_at(
                ("options", name),
                f"is required under `runner: {self.runner}`",
                remedy=f"Add `--set run.engine.options.{name}=…`.",
            )

    def settings(self) -> Settings:
        """The settings that executors receive."""
        cluster = self.options.local_cluster or LocalCluster()
        return Settings(
            runner=self.runner,
            workers=self.workers,
            job_endpoint=self.options.job_endpoint,
            master=self.options.master,
            taskmanagers=cluster.taskmanagers,
            **{
                name: float(seconds(limit))
                for name in ("timeout", "stall_timeout")
                if (limit := getattr(self.options, name))
            },
        )
