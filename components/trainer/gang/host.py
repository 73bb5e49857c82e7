"""The process that runs one host's tasks of a training, seen from its launcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strategos.components import worker_process

_MODULE = "strategos.components.trainer.run.worker"
_GRACE_SECONDS = 25.0  # a gang that is asked to end saves a checkpoint first


def run(request: Mapping[str, Any], name: str) -> dict[str, Any]:
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
