"""The environment of processes that the orchestrator starts."""

from __future__ import annotations

import os

from strategos.pipeline.config.types import PASSWORD_VARIABLE
from strategos.pipeline.view import quiet


def without_password() -> dict[str, str]:
    """This process's environment for one in which user code may run.

    A process that needs ML Metadata gets a connection.
    """
    return {k: v for k, v in os.environ.items() if k != PASSWORD_VARIABLE}


def of_executors(**more: str) -> dict[str, str]:
    """The environment for a process that runs nodes.

    Args:
      **more: Variables to set besides this process's own.
    """
    return {**without_password(), **quiet.environment(), **more}
