"""Whether a process that died by SIGKILL was killed because memory ran out.

The kernel counts what its out-of-memory killer ends, in each control group and on the
whole machine. A SIGKILL without a change of these counters came from somebody else.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_OUTSIDE = (
    "The SIGKILL came from outside: the kernel's out-of-memory killer has ended no "
    "process meanwhile. Ask whoever can send one: an operator, a job scheduler, a "
    "daemon such as systemd-oomd or earlyoom. Then run again."
)


class OomKills:
    """Counts of the out-of-memory killer, from now on.

    Args:
      root: Root of the file system with `proc` and `sys`.
    """

    def __init__(self, root: str | Path = "/"):
        self._root = Path(root)
        self._group, self._machine = self._counts()

    def explain(self, remedy: str) -> str:
        """Sentences on what is known of a SIGKILL since then, and what to do.

        Args:
          remedy: What helps against a lack of memory, such as "use less data".
        """
        before, now, where = self._group, self._counts()[0], "this control group"
        if before is None or now is None:
            before, now, where = self._machine, self._counts()[1], "this machine"
        if before is None or now is None:
            return (
                "Whether memory ran out is not known here; `dmesg` may show it. "
                f"If it did: {remedy}."
            )
        if now == before:
            return _OUTSIDE
        return (
            f"Memory ran out: the kernel ended {now - before} process(es) of {where} "
            f"meanwhile. {remedy[0].upper()}{remedy[1:]}."
        )

    def _counts(self) -> tuple[int | None, int | None]:
        """Of this process's control group and of the machine, where the kernel says."""
        group = next(filter(_is_known, map(_count, self._group_files())), None)
        return group, _count(self._root / "proc/vmstat")

    def _group_files(self) -> list[Path]:
        """Files that may have the control group's count, in its two versions."""
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
