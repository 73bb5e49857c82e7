"""Sums of an evaluation in a file, to judge them again by other bounds; numpy only."""

from __future__ import annotations

import dataclasses
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
from strategos.components.shards import kept

_VERSION = 9
_MOST_BYTES = 64 << 20  # of a file

_OURS = "strategos.components.evaluation."
_CLASSES = kept.ARRAYS | frozenset(
    {
        *(
            (f"{_OURS}scored", name)
            for name in ("Scored", "Learned", "Range", "Queries")
        ),
        (f"{_OURS}inputs.numbering", "Numbering"),
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
    }
)
_SUMS = kept.Format(_VERSION, _CLASSES, most_files=4, most_bytes=5 * _MOST_BYTES)


def write(path: Path, scored: Scored, metrics: Sequence[str]) -> None:
    """Writes the sums to a file, and removes the oldest files of its folder.

    Writes nothing, so that rows are scored again, if a metric is a plug-in (its sums
    may be of any class), if the sums take more than 64 MiB, or if the folder cannot be
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
    _SUMS.write(path, scored, _MOST_BYTES)
    _SUMS.prune(path.parent)


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
    scored = _SUMS.read(path)
    return _selected(scored, evaluator) if isinstance(scored, Scored) else None


def _selected(scored: Scored, evaluator: Mapping[str, Any]) -> Scored | None:
    sections = naming.sections(evaluator)
    if not sections:
        names, slices = metric_names(evaluator), slicings(evaluator)
        resampled = resampling.wanted(evaluator)
        sums = scored.sums.selected(names, slices, resampled=resampled)
        return dataclasses.replace(scored, sums=sums) if sums else None
    heads = {}
    for head, section in sections.items():
        selection = _selected(scored.heads[head], section)
        if selection is None:
            return None
        heads[head] = selection
    return dataclasses.replace(scored, heads=heads)
