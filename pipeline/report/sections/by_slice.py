"""Rows and means by slice, from statistics that have a data set for each slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorflow_metadata.proto.v0 import statistics_pb2

from strategos.pipeline.report.document import Block, Cell, Column, Raw, Table

_SLICES = 300
_MEANS = 12
_FEW = 10  # rows of a slice: the mean of fewer is all but a value of the data


def blocks(
    datasets: Sequence[statistics_pb2.DatasetFeatureStatistics], split: str
) -> Iterator[Block]:
    """A table of the slices: rows, weight, and means of the first numeric features.

    Args:
      datasets: All rows, then each slice, named as TFDV names them.
      split: Name of the split.
    """
    if not datasets:
        return
    whole, *_ = datasets
    is_weighted = bool(whole.weighted_num_examples)
    numeric = sorted(
        _name(x) for x in whole.features if x.WhichOneof("stats") == "num_stats"
    )
    names = numeric[:_MEANS]
    means = [{_name(x): x.num_stats for x in each.features} for each in datasets]
    rows: list[list[Cell]] = []
    for dataset, stats in zip(datasets, means, strict=True):
        few = dataset.num_examples < _FEW
        known = [_mean(stats.get(name), weighted=is_weighted) for name in names]
        weight: list[Cell] = [dataset.weighted_num_examples] if is_weighted else []
        name = dataset.name or "All Examples"
        rows.append(
            [
                name if dataset is whole else Raw(name, "slice"),
                dataset.num_examples,
                *weight,
                *(Raw(x) if few else x for x in known),
            ]
        )
    columns = [Column("slice", "slice"), Column("rows", "rows", True)]
    columns += [Column("weight", "weight", True)] if is_weighted else []
    columns += [Column(f"mean-{x}", f"mean of {x}", True) for x in names]
    kind = "Weighted means" if is_weighted else "Means"
    left_out = len(numeric) - len(names)
    about = f"{kind} by slice, split {split}"
    about += f", without {left_out} more features" if left_out else ""
    yield Table(about, columns, rows[:_SLICES], max(0, len(rows) - _SLICES), True)


def _mean(
    stats: statistics_pb2.NumericStatistics | None, *, weighted: bool
) -> float | None:
    """The mean of a feature in a slice; None if no row has a value."""
    if stats is None or not stats.common_stats.num_non_missing:
        return None
    return stats.weighted_numeric_stats.mean if weighted else stats.mean


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    return ".".join(feature.path.step) or feature.name
