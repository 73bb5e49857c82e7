"""Files that declare no types, or no columns: a row may lack some.

Types are those of the values. A library parses many rows at once, if a column has one
type in all of them. Where it fails, the rows are halved until each part can be parsed,
or is one row that cannot. So the values do not depend on how a file is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from strategos.components.data_files.sources.names import check_names, no_row
from strategos.components.data_files.sources.source import (
    MAX_ROWS,
    BadRow,
    Part,
    Source,
)
from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.data_files.inference import Profile

_HEAD_BYTES = 1 << 18


class TextSource(Source):
    """One file, or several, without types: each column is text."""

    def inspect(self, part: Part, profiles: Mapping[str, Profile]) -> int:
        """See `Source`; reads all of the part."""
        rows = 0
        for batch in self.batches(part):
            for name, column in zip(self.names, batch.columns, strict=True):
                profiles[name].see_text(column, self, part, rows)
            rows += batch.num_rows
        return rows

    def unseen(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`: `inspect` reads all values."""
        return iter(())


class OpenSource(Source):
    """One file of rows that may lack columns: all names are known once it was read.

    `names` and `types` are those of the first rows. Of the others `inspect` learns, and
    `batches` yields rows with the columns that they have.
    """

    open_ended: ClassVar[bool] = True

    def inspect(self, part: Part, profiles: Mapping[str, Profile]) -> int:
        """See `Source`; reads all of the part, and adds profiles of other columns."""
        rows = 0
        for batch in self.batches(part):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if name:
                    self._type_of(name, column.type)
                    profiles[name].see_column(column, self, part, rows)
                    # At once, because such rows are parsed one by one.
                    profiles[name].check_unmixed(name)
            rows += batch.num_rows
        return rows

    def unseen(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`: `inspect` reads all values."""
        return iter(())

    def select(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`; yields all columns: the others are read with them."""
        return self.batches(part)

    def every_name(self) -> tuple[str, ...]:
        """See `Source`."""
        names = dict.fromkeys(self.names)
        for batch in self.batches():
            names |= dict.fromkeys(filter(None, batch.schema.names))
        return tuple(names)

    def reject(self, row: int, bad: BadRow) -> None:
        """Notes a malformed row, or raises its error.

        Args:
          row: Index of the row in the part.
          bad: The row.

        Raises:
          UserError: Malformed rows are errors, see `malformed`.
        """
        if self.malformed is None:
            problem = f"{bad.problem(self.path)}. Received: {bad.text[:100]}"
            raise UserError(problem)
        self.malformed[row] = bad

    def _see_head(self) -> None:
        """Takes `names`, `types` and `lists` from the first rows."""

        from strategos.components.data_files.values.arrow_types import is_list

        self.malformed = {}
        batch = next(self.batches(Part(0, _HEAD_BYTES)), None)
        if batch is None:
            for bad in self.malformed.values():
                raise UserError(bad.problem(self.path))
            raise no_row(self.path)
        self.malformed = None
        columns = zip(batch.schema.names, batch.columns, strict=True)
        named = {name: column for name, column in columns if name}
        if not named:
            raise UserError(f"{self.path}: has no column in its first rows")
        check_names(self.path, list(named))
        self.names = tuple(named)
        types = {name: self._type_of(name, each.type) for name, each in named.items()}
        self.types: Mapping[str, pa.DataType] = types
        self.lists = frozenset(name for name, type_ in types.items() if is_list(type_))

    def _in_slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, batch.num_rows, MAX_ROWS):
            yield batch.slice(start, MAX_ROWS)


class Run(NamedTuple):
    """Rows that were parsed together, or one that cannot be parsed.

    Attributes:
      first: Index of the first row.
      batch: The rows; None if the row cannot be parsed.
    """

    first: int
    batch: pa.RecordBatch | None


def in_runs(
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
    yield from in_runs(rows[:half], parse, first)
    yield from in_runs(rows[half:], parse, first + half)
