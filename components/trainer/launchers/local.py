"""Training workers as processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategos.components import worker_process
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

_MODULE = "strategos.components.trainer.worker"
_GRACE_SECONDS = 25.0  # a gang that is asked to end saves a checkpoint first


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
    return run_host(request, "trainer")


def run_host(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Runs the host of a gang on `request`, see `worker.work`, and waits for it.

    Args:
      request: What to do.
      name: What to call it in log lines and errors.
    """
    return worker_process.run(
        _MODULE,
        request,
        name=name,
        env=worker_process.TENSORFLOW,
        grace=_GRACE_SECONDS,
    )
