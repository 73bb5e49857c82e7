"""The process that runs one host's tasks of a training, as its launcher sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategos.components import worker_process
from strategos.components.processes import Grace

_MODULE = "strategos.components.trainer.run.worker"


def run(request: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Runs the host of a gang and waits for it.

    Args:
      request: The training as JSON, see `run.worker.work`.
      name: Name of the process in log lines and errors.

    Returns:
      The facts of the training; empty if another host exports.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      WorkerError: The process failed otherwise or was killed.
    """
    return worker_process.run(
        _MODULE,
        request,
        name=name,
        env=worker_process.tensorflow(request["spec"]["settings"].get("keras")),
        grace=Grace.GANG,
    )
