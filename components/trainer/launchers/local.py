"""Training workers as processes of this machine."""

from __future__ import annotations

from typing import Any

from strategos.components.trainer.gang import host
from strategos.components.trainer.launchers.launcher import Launcher
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec


def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
    """Trains as `spec` says in a gang of this machine and waits for it.

    Args:
      spec: What is trained.
      operation: How it is run.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: What the worker says about the user's code, settings or data.
      WorkerError: The worker ended by an error of ours or without an answer.
    """
    request = {"spec": spec.to_json(), "operation": operation.to_json()}
    return host.run(request, "trainer")


LAUNCHER = Launcher(
    "local", "starts all processes on this machine", launch, on_this_host=True
)
