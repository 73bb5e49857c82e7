"""The section `run.engine`: what works on the data, never what comes out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from strategos.components.shards.engine import Engine as Settings
from strategos.pipeline.config.types import Positive, Section


class Engine(Section):
    """What works on the data; every engine gives the same results."""

    runner: Literal["direct"] = Field(
        "direct", description="`direct`: threads of the executor's process."
    )
    workers: Positive | None = Field(
        None,
        description="Number of threads. By default, one for each core that the process "
        "may use (affinity and control groups are respected).",
    )

    def settings(self) -> Settings:
        """The settings that executors receive."""
        return Settings(**self.model_dump())
