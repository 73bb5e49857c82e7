"""Detects whether the kernel's out-of-memory killer sent a SIGKILL.

The kernel counts the processes that its out-of-memory killer ends, for each control
group and for the machine. If the counters did not change, another process sent the
SIGKILL.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

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
        group = next(filter(_is_known, map(_count, self._group_files())), None)
        return group, _count(self._root / "proc/vmstat")

    def _group_files(self) -> list[Path]:
        """Files that may contain the control group's count, for cgroup v1 and v2."""
        found, mounted = [], self._root / "sys/fs/cgroup"
        with contextlib.suppress(OSError):
            for line in (self._root / "proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                inside = path.lstrip("/")
                if not controllers:
                    found.append(mounted / inside / "memory.events")
                elif controllers == "memory":
                    found.append(mounted / "memory" / inside / "memory.oom_control")
        return found


def _count(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _is_known(count: int | None) -> bool:
    return count is not None
