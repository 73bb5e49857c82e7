"""Detects whether the kernel's out-of-memory killer sent a SIGKILL.

The kernel counts the processes that its out-of-memory killer ends, for each control
group and for the machine. If the counters did not change, another process sent the
SIGKILL.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from strategos.components.limits import control_groups

_COUNTED = ("memory.events", "memory.oom_control")  # of cgroup v2 and v1
_OUTSIDE = (
    "The SIGKILL came from outside: the kernel's out-of-memory killer ended no process "
    "in the meantime. Possible senders: an operator, a job scheduler, a daemon such as "
    "systemd-oomd or earlyoom. Find the sender, then run again."
)


class OomKills:
    """Counts the kills of the out-of-memory killer from construction on.

    Args:
      root: Root of the file system with `proc` and `sys`.
    """

    def __init__(self, root: str | Path = "/"):
        self._root = Path(root)
        self._group, self._machine = self._counts()

    def explain(self, remedy: str) -> str:
        """Explains a SIGKILL since construction: its cause, if known, and a remedy.

        Args:
          remedy: Half a sentence for a lack of memory, such as "use less data".

        Returns:
          Whole sentences.
        """
        before, now, where = self._group, self._counts()[0], "this control group"
        if before is None or now is None:
            before, now, where = self._machine, self._counts()[1], "this machine"
        if before is None or now is None:
            return (
                "This system does not report whether memory ran out; `dmesg` may show "
                f"it. If it did: {remedy}."
            )
        if now == before:
            return _OUTSIDE
        return (
            f"Memory ran out: the kernel ended {now - before} process(es) of {where}. "
            f"{remedy[0].upper()}{remedy[1:]}."
        )

    def _counts(self) -> tuple[int | None, int | None]:
        """Kills in this process's control group and on the machine; None if unknown."""
        groups = control_groups.folders("memory", self._root)
        files = (folder / name for folder in groups for name in _COUNTED)
        known = (count for count in map(_count, files) if count is not None)
        return next(known, None), _count(self._root / "proc/vmstat")


def _count(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None
