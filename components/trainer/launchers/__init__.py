"""Launchers: where a training's worker processes run.

A launcher is a module of this folder with a `LAUNCHER`, listed in `_MODULES`. The
settings, the checks and `strategos explain` learn of it from `LAUNCHERS`. Settings
import the modules, so packages that take long to import are imported in functions.
"""

from __future__ import annotations

import importlib
from typing import Any

from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

_MODULES = ("local", "external")

LAUNCHERS: dict[str, Launcher] = {
    each.LAUNCHER.name: each.LAUNCHER
    for each in (importlib.import_module(f"{__name__}.{name}") for name in _MODULES)
}
"""By their name in `trainer.distribution.launcher`."""


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains as `spec` says by the launcher that `operation` names.

    Args:
      spec: What is trained.
      operation: How it is run.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: What the workers report about the user's code, settings or data.
      WorkerError: The workers ended by an error of ours or without an answer.
    """
    return LAUNCHERS[operation.launcher].launch(spec, operation)
