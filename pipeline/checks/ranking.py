"""Checks of metrics by query on the first rows: queries, their split, and labels."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from strategos.components.errors import UserError, required
from strategos.components.evaluation.by_query.metrics import MOST_RELEVANT
from strategos.components.evaluation.heads import naming
from strategos.components.evaluation.metrics import METRICS
from strategos.pipeline.config.problems import shown
from strategos.pipeline.config.sections import Config

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.data_files import sources

_COMPARED = 10_000  # rows
_ENOUGH = 10  # queries of several rows; one may stand for rows without a query


def problems(config: Config, source: sources.Source) -> Iterator[UserError]:
    """Yields problems of queries that are rounded or divided, and of labels.

    Args:
      config: The effective settings, with `evaluator`.
      source: The first file that has rows.
    """
    query = required(config.evaluator).query
    if not query:
        return
    batch = next(source.fresh().batches())
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if _is_inexact(columns.get(query), bool(config.schema_.file)):
        yield config.problem(
            "evaluator.query",
            f"`{query}` has numbers with decimals in {shown(source.path)}, which may "
            "be rounded",
            expected="whole numbers or texts",
            remedy="Write them so before the data are read, or name another column.",
        )
    keys = config.data.split.keys
    if keys and _is_divided(columns, query, keys):
        yield config.problem(
            "evaluator.query",
            f"ranks all rows of a value of `{query}` together, and `data.split.keys` "
            f"({', '.join(keys)}) divides them: in {shown(source.path)}, they differ "
            f"among the rows of most values of `{query}`",
            remedy=f"Write `keys: [{query}]`, or a column with one value in all rows "
            "of a query.",
        )
    for name in dict.fromkeys(_labels(config)):
        for value in _ends(columns.get(name)):
            if not 0 <= value <= MOST_RELEVANT:
                yield config.problem(
                    "label",
                    received=f"{value:g} as `{name}` in {shown(source.path)}",
                    expected=f"relevance from 0 to {MOST_RELEVANT} for metrics by "
                    "query, whose gain is 2^label - 1",
                    remedy="Make grades of it, such as 0 to 4, or use other metrics.",
                )


def _labels(config: Config) -> Iterator[str]:
    """Yields the labels that metrics by query read."""
    section = required(config.evaluator).model_dump()
    heads = config.target.by_output
    for head, own in (naming.sections(section) or {"": section}).items():
        if any(METRICS[name].by_query for name in own["metrics"]):
            yield from heads[head].columns


def _is_inexact(values: pa.Array | None, typed: bool) -> bool:
    """Whether a column has numbers with decimals, by its type or the first values.

    Args:
      values: The first values; None if the file lacks the column.
      typed: Whether a curated schema has its type, where the file has texts.
    """
    from pyarrow import types

    if values is None or types.is_floating(values.type):
        return values is not None
    is_text = not types.is_integer(values.type)
    return is_text and not typed and bool(_ends(values)) and not _is_whole(values)


def _is_divided(
    columns: Mapping[str, pa.Array], query: str, keys: Sequence[str]
) -> bool:
    """Whether the keys of the split differ within most queries of the first rows.

    Not within one: in a few rows, a key such as the user of a session may be missing.
    """
    if {query, *keys} == {query} or not {query, *keys} <= columns.keys():
        return False
    some = (columns[name][:_COMPARED].to_pylist() for name in (query, *keys))
    by_query = collections.defaultdict(list)
    for value, *own in zip(*some, strict=True):
        if value not in (None, ""):
            by_query[str(value)].append(str(own))
    several = [own for own in by_query.values() if len(own) > 1]
    divided = sum(len({*own}) > 1 for own in several)
    return len(several) >= _ENOUGH and 2 * divided > len(several)


def _is_whole(values: pa.Array) -> bool:
    import pyarrow as pa

    try:
        values.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _ends(values: pa.Array | None) -> list[float]:
    """The lowest and the highest number; [] unless all values are numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values is None:
        return []
    try:
        ends = pc.min_max(values.cast(pa.float64())).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # texts, or missing values
        return []
    return sorted({x for x in ends.values() if x is not None and not math.isnan(x)})
