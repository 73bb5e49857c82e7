"""The processes that the orchestrator starts: their environment and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from strategos.pipeline import quiet
from strategos.pipeline.values import PASSWORD_VARIABLE

_GRACE_SECONDS = 30.0  # a training that is asked to end saves a checkpoint first


def without_password() -> dict[str, str]:
    """This process's environment for one in which user code may run.

    A process that needs ML Metadata gets a connection.
    """
    return {k: v for k, v in os.environ.items() if k != PASSWORD_VARIABLE}


def environment(**more: str) -> dict[str, str]:
    """The environment for a process that runs nodes.

    Args:
      **more: Variables to set besides this process's own.
    """
    return {**without_password(), **quiet.environment(), **more}


def end(process: subprocess.Popen) -> None:
    """Asks a process, the leader of a session, to end, and ends all that is left of it.

    An interrupt meanwhile is impatience: it ends the process without further waiting.
    """
    try:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
