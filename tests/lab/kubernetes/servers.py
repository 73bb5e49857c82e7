"""The cluster's processes on this machine, with their logs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from failures import ClusterError

_LINES = 12
_PAUSE = 1.0


class Servers:
    """Starts processes and waits for them.

    Args:
      logs: The folder of their logs; created.
    """

    def __init__(self, logs: Path):
        self._logs = logs
        self._started: dict[str, subprocess.Popen] = {}
        self._given: dict[str, tuple] = {}
        logs.mkdir()

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts a process.

        Args:
          name: Of the process and of its log.
          command: The program and its arguments.
          environment: Variables in addition to those of this process.
        """
        self._given[name] = (command, environment)
        with open(self._log(name), "a") as log:
            self._started[name] = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self, name: str, is_ready: Callable[[], object], seconds: float) -> None:
        """Waits until a process serves.

        Args:
          name: Of the process.
          is_ready: Asked every tenth of a second; may raise OSError.
          seconds: The limit.

        Raises:
          ClusterError: The process ended, or takes too long.
        """
        end = time.monotonic() + seconds
        while not _asked(is_ready):
            code = self._started[name].poll()
            if code is not None:
                raise ClusterError(f"{name} ended with code {code}{self._tail(name)}")
            if time.monotonic() > end:
                raise ClusterError(
                    f"{name} is not ready after {seconds:.0f} s{self._tail(name)}"
                )
            time.sleep(0.1)

    def keep(self) -> NoReturn:
        """Starts processes again that end; collects orphans of others."""
        while True:
            ended, _ = os.wait()
            for name, process in list(self._started.items()):
                if process.pid == ended:
                    time.sleep(_PAUSE)  # no faster, if it ends at once
                    self.start(name, *self._given[name])

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()[-_LINES:]
        return f"; {self._log(name)} ends with:\n" + "\n".join(lines)


def _asked(is_ready: Callable[[], object]) -> bool:
    try:
        return bool(is_ready())
    except OSError:
        return False
