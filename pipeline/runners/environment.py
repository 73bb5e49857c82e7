"""Environments of the processes that the orchestrator starts."""

from __future__ import annotations

import os

from strategos.components.worker_process import TENSORFLOW
from strategos.pipeline.config.types import PASSWORD_VARIABLE
from strategos.pipeline.view import quiet

# Arrow's default on the older stack, jemalloc, returns large buffers to the system
# early, and so has to ask for their pages again (ExampleGen: 8 % of its CPU time).
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}


def without_password() -> dict[str, str]:
    """The environment for a process that may run user code: this process's own.

    The password of ML Metadata is removed; a process that needs it gets a connection.
    """
    return {k: v for k, v in os.environ.items() if k != PASSWORD_VARIABLE}


def of_executors(**more: str) -> dict[str, str]:
    """The environment for a process that runs nodes, and forks workers.

    TensorFlow's variables are those of workers, which share its import.

    Args:
      **more: Variables to add to those of this process.
    """
    own = without_password()
    return {**_ALLOCATOR, **own, **quiet.environment(), **TENSORFLOW, **more}
