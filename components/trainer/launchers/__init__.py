"""Launchers: where a training's worker processes run.

A launcher is a module of this folder with a `LAUNCHER`, listed in `_MODULES`. The
settings, the checks and `strategos explain` read `LAUNCHERS`. The settings import
these modules, so packages that take long to import are imported in functions.
"""

from __future__ import annotations

import importlib
from typing import Any

from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

_MODULES = ("local", "external", "slurm", "tfjob", "vertex")

LAUNCHERS: dict[str, Launcher] = {
    each.LAUNCHER.name: each.LAUNCHER
    for each in (importlib.import_module(f"{__name__}.{name}") for name in _MODULES)
}
"""Launchers by name, the value of `trainer.distribution.launcher`."""


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains by the launcher that the operation names.

    Args:
      spec: The training.
      operation: How it is run.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      WorkerError: The workers failed by an internal error or without an answer.
    """
    return LAUNCHERS[operation.launcher].launch(spec, operation)
