"""Launchers: where a training's worker processes run.

A launcher is a module with `launch(spec, operation)`, which trains as the `WorkerSpec`
says and returns the facts of it, as in `trainer.json`.
"""

from __future__ import annotations

from typing import Any

from strategos.components.trainer.launchers import external, local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

LAUNCHERS = {"local": local.launch, "external": external.launch}
"""By their name in `trainer.distribution.launcher`."""


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains as `spec` says by the launcher that `operation` names.

    Raises:
      UserError: What the workers say about the user's code, settings or data.
      WorkerError: They ended by an error of ours or without an answer.
    """
    return LAUNCHERS[operation.launcher](spec, operation)
