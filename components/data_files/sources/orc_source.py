"""ORC files, with errors that name file and row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.source import (
    MAX_ROWS,
    WHOLE,
    Part,
    Source,
    chosen,
)
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.slow_imports import pa


class OrcSource(Source):
    """An ORC file, read by stripe; the fields of a struct are columns."""

    def __init__(self, path: str):
        """See `Source`."""
        from strategos.components.data_files.sources import structs

        self.path = path
        file = self._open()
        self.declare(structs.flat_schema(file.schema))
        self._tops = {  # the column of the file that has each column as a field
            leaf: field.name
            for field in file.schema
            for leaf in structs.flat_schema([field]).names
        }
        self._stripes, self._rows = file.nstripes, file.nrows
        self.is_empty = not self._rows

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        formats.check_binary(path, formats.ORC, "ORC")

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        first, count = [], 0
        for batch in self._stripes_of(WHOLE):
            first.append(batch.slice(0, rows - count))
            count += first[-1].num_rows
            if count == rows:
                break
        pa.orc.write_table(pa.Table.from_batches(first), path)

    def parts(self, size: int) -> list[Part]:
        """See `Source`: ranges of stripes, taken as equally large."""
        (status,) = storage.statuses([self.path])
        of_each = max(1, size * self._stripes // max(status.size, 1))
        starts = range(0, max(self._stripes, 1), of_each)
        return list(map(Part, starts, [*starts[1:], None]))

    def select(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        wanted = list(names)
        tops = list(dict.fromkeys(self._tops[name] for name in wanted))
        return (chosen(batch, wanted) for batch in self._read(part, tops))

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        if self.is_empty:
            raise no_row(self.path)
        return self._read(part)

    def where(self, part: Part, row: int) -> str:
        """See `Source`: a row number from 1."""
        return f"row {self.rows_of(Part(0, part.start)) + row + 1}"

    def rows_of(self, part: Part) -> int:
        """See `Source`: of the whole file from its metadata."""
        if part == WHOLE:
            return self._rows
        if part.stop == 0:
            return 0
        first = self._tops[self.names[0]]
        return sum(batch.num_rows for batch in self._stripes_of(part, [first]))

    def _read(
        self, part: Part, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        from strategos.components.data_files.sources import structs

        for batch in self._stripes_of(part, columns):
            flat = structs.flat(batch)
            for start in range(0, flat.num_rows, MAX_ROWS):
                yield flat.slice(start, MAX_ROWS)

    def _stripes_of(
        self, part: Part, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields stripes as the file has them."""
        file = self._open()
        for stripe in range(self._stripes)[part.start : part.stop]:
            try:
                yield file.read_stripe(stripe, columns)
            except (pa.ArrowException, OSError) as error:
                raise UserError(self._unreadable(error)) from error

    def _open(self) -> pa.orc.ORCFile:
        try:
            return pa.orc.ORCFile(storage.open_arrow(self.path))
        except (pa.ArrowException, OSError) as error:
            raise UserError(self._unreadable(error)) from error

    def _unreadable(self, error: Exception) -> str:
        return formats.damaged(self.path, "ORC", error)
