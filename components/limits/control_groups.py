"""The control groups of this process: bounds that a container or a service sets."""

from __future__ import annotations

from pathlib import Path


def folders(controller: str, root: Path) -> list[Path]:
    """Folders of this process's control group, and of its parents.

    Args:
      controller: Name of the controller, such as `cpu` or `memory`.
      root: Root of the file system with `proc` and `sys`.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    top = root / "sys/fs/cgroup"
    folders_of = []
    for line in lines:  # number:controllers:path; version 2 names no controllers
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = top / controller if controllers else top
        own = base / path.lstrip("/")
        folders_of += [
            each for each in (own, *own.parents) if each.is_relative_to(base)
        ]
    return folders_of


def memory(root: str | Path = "/") -> int:
    """Bytes of memory that this process and its children may use.

    The memory of the machine, or less if a control group allows less.

    Args:
      root: Root of the file system with `proc` and `sys`.
    """
    _, total, *_ = (Path(root) / "proc/meminfo").read_text().split(maxsplit=2)
    limits = [_limit(folder) for folder in folders("memory", Path(root))]
    return min([int(total) * 1024, *filter(None, limits)])


def _limit(group: Path) -> int | None:
    """Bytes that a control group allows; None for no bound, or if it is not visible."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            return int((group / name).read_text())
        except (OSError, ValueError):  # missing, or `max`
            continue
    return None
