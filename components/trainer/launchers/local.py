"""Trains by worker processes on this machine."""

from __future__ import annotations

from typing import Any

from strategos.components.trainer.gang import host
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains in a gang on this machine and waits for it.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      WorkerError: The worker failed by an internal error or without an answer.
    """
    request = {"spec": spec.to_json(), "operation": operation.to_json()}
    return host.run(request, "trainer")


LAUNCHER = Launcher(
    "local",
    "starts all processes on this machine",
    launch,
    on_this_host=True,
    services=("kubeflow", "vertex"),
    fixed_size="",
)
