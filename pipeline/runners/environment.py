"""Environments of the processes that the orchestrator starts."""

from __future__ import annotations

import os

from strategos.components.worker_process import TENSORFLOW
from strategos.pipeline.config.types import PASSWORD_VARIABLE
from strategos.pipeline.view import quiet


def without_password() -> dict[str, str]:
    """The environment for a process that may run user code: this process's own.

    The password of ML Metadata is removed; a process that needs it gets a connection.
    """
    return {k: v for k, v in os.environ.items() if k != PASSWORD_VARIABLE}


def of_executors(**more: str) -> dict[str, str]:
    """The environment for a process that runs nodes, and forks workers.

    TensorFlow's variables are set as for workers, which share its import.

    Args:
      **more: Variables to add to the ones of this process.
    """
    # The C library's default, eight for each core, keeps 100 MB more of freed memory at
    # the peak of a run of 10 million rows.
    arenas = {"MALLOC_ARENA_MAX": str(len(os.sched_getaffinity(0)))}
    own = without_password()
    return {**arenas, **own, **quiet.environment(), **TENSORFLOW, **more}
