"""The decisions of `strategos retrain`, kept in the local state of a root."""

from __future__ import annotations

import collections
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strategos.components.files import commit
from strategos.pipeline.root.state import make_state, state_folder

_LARGEST = 1_000_000  # bytes of the file; then its older half is dropped


def record(root: str, pipeline: str, decision: dict[str, Any]) -> None:
    """Appends a decision; the caller holds the root's lock.

    Args:
      root: The pipeline root.
      pipeline: The pipeline's name.
      decision: JSON-able values.
    """
    path = _file(root)
    make_state(path.parent)
    line = json.dumps({"at": time.time(), "pipeline": pipeline, **decision})
    with path.open("a") as file:
        file.write(f"{line}\n")
    if path.stat().st_size > _LARGEST:
        lines = path.read_text().splitlines(keepends=True)
        commit.write(path, "".join(lines[len(lines) // 2 :]))


def last(root: str | Path, pipeline: str | None = None) -> dict[str, Any] | None:
    """The last decision with its time `at` (Unix seconds); None if there is none.

    Args:
      root: The pipeline root.
      pipeline: The pipeline's name; None for any.
    """
    return next(iter(newest(root, pipeline, 1)), None)


def newest(root: str | Path, pipeline: str | None, limit: int) -> list[dict[str, Any]]:
    """The last decisions, the newest first, each with its time `at`.

    Args:
      root: The pipeline root.
      pipeline: The pipeline's name; None for any.
      limit: Largest number of decisions.
    """
    return list(collections.deque(_read(root, pipeline), maxlen=limit))[::-1]


def first_check(
    root: str | Path, pipeline: str, now: float, target: str
) -> float | None:
    """The time of the first decision since the last run, or since the clock went back.

    Args:
      root: The pipeline root.
      pipeline: The pipeline's name.
      now: Unix seconds; a decision with a later time was made by a wrong clock.
      target: `caching.target_key`.

    Returns:
      Unix seconds; None without such a decision.
    """
    first = None
    for decision in _read(root, pipeline):
        if decision.get("target", target) != target:
            continue
        if decision["at"] > now or decision.get("run_id"):
            first = None
        else:
            first = min(decision["at"], first or now)
    return first


def _read(root: str | Path, pipeline: str | None) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(OSError), _file(root).open() as lines:
        for line in lines:
            with contextlib.suppress(ValueError):  # cut off by a full disk or a kill
                decision = json.loads(line)
                if pipeline in (None, decision["pipeline"]):
                    yield decision


def _file(root: str | Path) -> Path:
    return state_folder(root) / "decisions.jsonl"
