"""The end of the processes that the orchestrator has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

_GRACE_SECONDS = 30.0  # a training that is asked to end saves a checkpoint first


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
