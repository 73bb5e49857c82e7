"""The section `run.engine`: what works on the data, never what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import InitErrorDetails

from strategos.components.shards.engine import Engine as Settings
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import raise_all, reject_at
from strategos.pipeline.config.types import Positive, Section

Address = Annotated[
    str, StringConstraints(pattern=r"^[^\s:/]+:[0-9]{1,5}$"), Allowed("HOST:PORT")
]

_UNDER = {"job_endpoint": ("portable",)}
"""The runners that each option belongs to; all of them need it."""


class Options(Section):
    """Options of the runner; each one belongs to the runners that it names."""

    job_endpoint: Address | None = Field(
        None, description="`portable`: address of the Beam job server. Required there."
    )


class Engine(Section):
    """What works on the data; every engine gives the same results."""

    runner: Literal["direct", "portable"] = Field(
        "direct",
        description="`direct`: threads of the executor's process. `portable`: a runner "
        "behind a Beam job server, whose workers see the same files and the same "
        "Python environment as this machine.",
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
        for name, runners in _UNDER.items():
            if getattr(self.options, name) is not None and self.runner not in runners:
                yield reject_at(
                    ("options", name),
                    f"has no effect under `runner: {self.runner}`",
                    remedy=f"Remove it, or use `runner: {runners[0]}`.",
                )

    def _missing(self) -> Iterator[InitErrorDetails]:
        for name, runners in _UNDER.items():
            if getattr(self.options, name) is None and self.runner in runners:
                yield reject_at(
                    ("options", name),
                    f"is required under `runner: {self.runner}`",
                    remedy=f"Add `--set run.engine.options.{name}=…`.",
                )

    def settings(self) -> Settings:
        """The settings that executors receive."""
        return Settings(
            self.runner, self.workers, job_endpoint=self.options.job_endpoint or ""
        )
