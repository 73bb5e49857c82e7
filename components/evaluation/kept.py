"""Sums of an evaluation in a file, to judge them again by other bounds; numpy only.

A line of JSON, with a version, the file's name, and the digest and the size of the
pickled sums that follow. A file is read only if it is whole and has its own name, which
stands for all that the sums depend on. Reading makes objects of the classes of sums and
of no others, so that a file from elsewhere runs no code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import logging
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.intervals import resampling
from strategos.components.evaluation.metrics import (
    METRICS,
    metric_names,
    plain,
)
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.slices.slicing import slicings
from strategos.components.files import commit

_VERSION = 7
_MOST_FILES = 4  # newest ones that are kept
_MOST_BYTES = 64 << 20

_OURS = "strategos.components.evaluation."
_CLASSES = frozenset(
    {
        *(
            (f"{_OURS}scored", name)
            for name in ("Scored", "Learned", "Range", "Queries")
        ),
        *((f"{_OURS}sums", "Sums"), (f"{_OURS}curves", "Curves")),
        *(
            (f"{_OURS}slices.groups", name)
            for name in ("Features", "Groups", "ModelSums", "Arrays")
        ),
        *((f"{_OURS}slices.slicing", name) for name in ("Slicing", "Part", "Bin")),
        *((f"{_OURS}trivial", "Labels"), ("builtins", "set")),
        *(
            (f"{_OURS}classes.curves", "ClassCurves"),
            (f"{_OURS}classes.counts", "ClassCounts"),
            (f"{_OURS}plots.counts", "Counts"),
            *((f"{_OURS}plots.errors", "Errors"), (f"{_OURS}plots.cells", "Cells")),
        ),
        *(("numpy", "ndarray"), ("numpy", "dtype")),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy.core.numeric", "_frombuffer"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)


def write(path: Path, scored: Scored, metrics: Sequence[str]) -> None:
    """Writes the sums to a file, and removes the oldest files of its folder.

    Writes nothing, so that rows are scored again, if a metric is a plug-in, whose sums
    may be of any class, if the sums take more than 64 MiB, or if the folder cannot be
    written.

    Args:
      path: The file; its folder is made if it is missing.
      scored: Results of all rows.
      metrics: The metrics that have sums.
    """
    if not {*map(plain, metrics)} <= {*METRICS.own}:
        return
    for part in (scored, *scored.heads.values()):
        part.sums.compact()
    content = pickle.dumps(scored, protocol=pickle.HIGHEST_PROTOCOL)
    if len(content) > _MOST_BYTES:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        commit.write(path, _header(path, content) + b"\n" + content)
        files = sorted(path.parent.glob("*"), key=lambda each: each.stat().st_mtime)
        for each in files[:-_MOST_FILES]:
            commit.remove(each)
    except OSError as error:
        logging.warning("sums are not kept: %s", error)


def read(path: Path, evaluator: Mapping[str, Any]) -> Scored | None:
    """Reads the sums that an evaluation needs.

    Args:
      path: The file.
      evaluator: The section: task, metrics, slices, bounds.

    Returns:
      Results of all rows; or None if the file is missing or damaged, or has not all of
      the sums: then rows must be scored.
    """
    if not {*map(plain, metric_names(evaluator))} <= {*METRICS.own}:
        return None
    scored = _whole(path)
    if scored is None or not (selected := _selected(scored, evaluator)):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the oldest are removed, by `write` and by `strategos clean`
    return selected


def _selected(scored: Scored, evaluator: Mapping[str, Any]) -> Scored | None:
    sections = naming.sections(evaluator)
    if not sections:
        names, slices = metric_names(evaluator), slicings(evaluator)
        resampled = resampling.wanted(evaluator)
        sums = scored.sums.selected(names, slices, resampled=resampled)
        return dataclasses.replace(scored, sums=sums) if sums else None
    heads = {}
    for head, section in sections.items():
        found = _selected(scored.heads[head], section)
        if found is None:
            return None
        heads[head] = found
    return dataclasses.replace(scored, heads=heads)


def _whole(path: Path) -> Scored | None:
    try:
        line, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        logging.warning("sums are not read: %s", error)
        return None
    if line != _header(path, content):
        logging.warning("%s is damaged or of another version: not used", path)
        return None
    try:
        scored = _Unpickler(io.BytesIO(content)).load()
    except Exception as error:  # pickle raises errors of many kinds
        logging.warning("%s is not used: %s", path, error)
        return None
    return scored if isinstance(scored, Scored) else None


def _header(path: Path, content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    fields = {"version": _VERSION, "name": path.name, "sha256": digest}
    return json.dumps({**fields, "bytes": len(content)}).encode()


class _Unpickler(pickle.Unpickler):
    """Makes sums, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of sums")
        return super().find_class(module, name)
