"""Launchers: where a training's worker processes run.

A launcher is a module of this folder with a `LAUNCHER`, listed in `LAUNCHERS`, or a
plug-in. The settings, the checks and `strategos explain` read `LAUNCHERS`. The settings
import these modules, so packages that take long to import are imported in functions.
"""

from __future__ import annotations

from typing import Any

from strategos.components.plugins import Registry
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

LAUNCHERS: Registry[Launcher] = Registry(
    "strategos.launchers",
    Launcher,
    {
        name: f"{__name__}.{name}:LAUNCHER"
        for name in ("local", "external", "slurm", "kubernetes", "tfjob", "vertex")
    },
)
"""Launchers by name, the value of `trainer.distribution.launcher`."""


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains by the launcher that the operation names.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      WorkerError: The workers failed by an internal error or without an answer.
    """
    return LAUNCHERS[operation.launcher].launch(spec, operation)
