"""Ends a run if its processes together take more memory than `run.memory`.

The kernel's out-of-memory killer would end some process of the machine instead, maybe
of another user, and report no figures. The process that keeps a pushed model loaded
(`components/predict/model_process`) counts, and ends first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from strategos.components.errors import UserError
from strategos.components.predict import client
from strategos.components.processes import Leader
from strategos.components.wording import data_size

_LOOK_SECONDS = 1.0


class MemoryWatch:
    """Kills a process if this process and its descendants take too much memory.

    Pages that processes share count once; pages of files do not count, since the kernel
    takes them back when memory is short.

    Args:
      process: The process to kill, with its session.
      limit: Bytes that all processes together may take.
      state: The root's state folder; its model server counts and is ended first.

    Attributes:
      error: Why the process was killed; None if the watch did not kill it.
    """

    def __init__(self, process: Leader, limit: float, state: Path | None = None):
        self.error: UserError | None = None
        self._process, self._limit, self._state = process, limit, state
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch. Call it before the process is waited for."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            server = self._state and client.process_of(self._state)
            others = [self._process.pid, *([server] if server else [])]
            used = taken_by_family(self._limit, others)
            if sum(used.values()) > self._limit:
                if server:
                    client.end(server)
                    continue
                self.error = _error(used, self._limit)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                return


def taken_by_family(enough: float = 0.0, others: Sequence[int] = ()) -> dict[int, int]:
    """Bytes of memory that this process and each of its descendants take.

    Args:
      enough: Bytes up to which the sum may be too high: shared pages then count for
        each process, which is a hundred times as fast to read.
      others: Ids of further processes to count, with their descendants; one that is
        a descendant counts once.
    """
    pids = {os.getpid(), *others}
    for each in tuple(pids):
        with contextlib.suppress(psutil.NoSuchProcess):
            pids |= {x.pid for x in psutil.Process(each).children(recursive=True)}
    used = {pid: _kilobytes(pid, "status", "RssAnon", "RssShmem") for pid in pids}
    if sum(used.values()) > enough:
        used = {
            pid: _kilobytes(pid, "smaps_rollup", "Pss_Anon", "Pss_Shmem")
            for pid in pids
        }
    return used


def _kilobytes(pid: int, file: str, *names: str) -> int:
    """The sum of some lines of a file in /proc/PID, in bytes; 0 if it has ended.

    psutil does not split proportional shares (Pss) by kind of page.
    """
    total = 0
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in names:
                total += int(value.split()[0]) * 1024
    return total


def _error(used: dict[int, int], limit: float) -> UserError:
    together, largest = sum(used.values()), max(used.values())
    return UserError(
        f"the processes of the run take {data_size(together)} of memory together, the "
        f"largest of {len(used)} takes {data_size(largest)}; {data_size(limit)} are "
        "allowed",
        key="run.memory",
        remedy="Use smaller batches (`trainer.batch_size`), fewer "
        "`run.engine.workers`, less data or a machine with more memory; or raise "
        "`run.memory`.",
    )
