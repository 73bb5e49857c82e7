"""How training is run, as opposed to what is trained: never part of a cache key.

The orchestrator writes it to an environment variable of the process that runs
executors; an executor of any other orchestrator finds none and takes the defaults.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "STRATEGOS_TRAINER"
"""Name of the environment variable."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """Launcher, time-outs, restarts and checkpoints.

    Attributes:
      launcher: Name of the launcher, see `launchers`.
      start_timeout: Seconds in which all tasks must join, and do their first step.
      stall_timeout: Seconds without a step after which a gang counts as hanging.
      max_restarts: How often a gang that failed is started again.
      checkpoint_every: `30s` or `200 steps`.
      checkpoint_keep: How many of the newest checkpoints stay.
      checkpoint_key: What the data, settings and code of this training hash to, where
        the orchestrator knows it.
      from_scratch: Whether checkpoints of earlier runs are ignored.
    """

    launcher: str = "local"
    start_timeout: float = 300.0
    stall_timeout: float = 300.0
    max_restarts: int = 3
    checkpoint_every: str = "30s"
    checkpoint_keep: int = 2
    checkpoint_key: str = ""
    from_scratch: bool = False

    def to_environment(self) -> dict[str, str]:
        """The variable that hands it on."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Operation:
        """What the orchestrator asked for, or the defaults."""
        return cls.from_json(json.loads(environ.get(VARIABLE, "{}")))

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Operation:
        """The inverse of `to_json`."""
        return cls(**values)
