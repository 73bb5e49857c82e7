"""Rows whose types are known only once they are parsed: in runs of equal types.

A library parses many rows at once, if a column has one type in all of them. Where it
fails, the rows are halved until each part can be parsed, or is one row that cannot. So
the values do not depend on how a file is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Run(NamedTuple):
    """Rows that were parsed together, or one that cannot be parsed.

    Attributes:
      first: Index of the first row.
      batch: The rows; None if the row cannot be parsed.
    """

    first: int
    batch: pa.RecordBatch | None


def of(
    rows: Sequence[bytes],
    parse: Callable[[Sequence[bytes]], pa.RecordBatch | None],
    first: int = 0,
) -> Iterator[Run]:
    """Yields runs of rows, in order.

    Args:
      rows: Each row as the file has it; at least one.
      parse: Returns None if it cannot parse the rows together.
      first: Index of the first row.
    """
    batch = parse(rows)
    if batch is not None or len(rows) == 1:
        yield Run(first, batch)
        return
    half = len(rows) // 2
    yield from of(rows[:half], parse, first)
    yield from of(rows[half:], parse, first + half)
