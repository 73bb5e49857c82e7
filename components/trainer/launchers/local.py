"""Training workers as processes of this machine."""

from __future__ import annotations

from typing import Any

from strategos.components import worker_process
from strategos.components.trainer.spec import WorkerSpec

_MODULE = "strategos.components.trainer.worker"


def launch(spec: WorkerSpec) -> dict[str, Any]:
    """Trains as `spec` says in a worker process and waits for it.

    Returns:
      The facts of the training, as in `trainer.json`.

    Raises:
      UserError: What the worker says about the user's code, settings or data.
      WorkerError: The worker ended by an error of ours or without an answer.
    """
    return worker_process.run(
        _MODULE, spec.to_json(), name="trainer", env=worker_process.TENSORFLOW
    )
