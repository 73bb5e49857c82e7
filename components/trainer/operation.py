"""Settings of how training runs, not of its result: never part of a cache key.

The orchestrator writes an `Operation` to an environment variable of the process that
runs executors. Under other orchestrators the variable is missing, and the defaults
apply.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "STRATEGOS_TRAINER"
"""Name of the environment variable that holds an `Operation` as JSON."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """Launcher, time-outs, restarts and checkpoints.

    The fields are the settings of the same names in `trainer.distribution`,
    `trainer.checkpoint` and `trainer.debug`, with time-outs in seconds;
    `checkpoint_every` stays text, e.g. "30s" or "200 steps". The configuration
    describes them and takes its defaults from here.

    Attributes:
      checkpoint_key: Hash of this training's data, settings and code; "" where the
        orchestrator does not know it.
      checkpoint_root: URL of the folder for checkpoints, where the model's folder is a
        copy that ends with its container; "" for a folder beside the model's.
      from_scratch: Whether checkpoints of earlier runs are ignored.
      judged_as: The Evaluator's task, such as "binary"; "" without an Evaluator.
      job: The launcher's section of `trainer.distribution`, such as `.slurm`, with
        times in seconds; empty for launchers that submit no job.
      dump: Folder for the records of TensorFlow's debugger of each task; "" for none.
      check_bytes: For `strategos check-cluster`, bytes that workers exchange and save
        in place of the training; 0 trains.
      min_workers: Workers with which a gang goes on that has lost others; None for all.
    """

    launcher: str = "local"
    start_timeout: float = 300.0
    stall_timeout: float = 300.0
    max_restarts: int = 3
    min_workers: int | None = None
    checkpoint_every: str = "30s"
    checkpoint_keep: int = 2
    checkpoint_key: str = ""
    checkpoint_root: str = ""
    from_scratch: bool = False
    judged_as: str = ""
    check_numerics: bool = False
    dump: str = ""
    check_bytes: int = 0
    job: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_environment(self) -> dict[str, str]:
        """The environment variable that passes this operation to another process."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Operation:
        """Reads the operation from the environment; a missing variable means defaults.

        Args:
          environ: The environment, by default this process's.
        """
        return cls.from_json(json.loads(environ.get(VARIABLE, "{}")))

    def to_json(self) -> dict[str, Any]:
        """The operation as JSON-able values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Operation:
        """Builds an operation from the values that `to_json` returned."""
        return cls(**values)
