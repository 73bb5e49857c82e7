"""Parquet files, with errors that name file and row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.source import MAX_ROWS, WHOLE, Part, Source
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.files.filesystems import is_remote
from strategos.components.slow_imports import pa

_BATCH_BYTES = 16 << 20


class ParquetSource(Source):
    """A Parquet file; a list column becomes a feature with many values per row.

    The fields of a struct are columns, see `structs`.
    """

    knows_rows: ClassVar[bool] = True

    def __init__(self, path: str):
        """See `Source`."""
        from strategos.components.data_files.sources import structs

        self.path = path
        with self._open() as file:
            self.declare(structs.flat_schema(file.schema_arrow))
            # Arrow reads such columns of one row group at a time only.
            self._by_group = any(_has_dictionary(f.type) for f in file.schema_arrow)
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            self._groups = [(each.num_rows, each.total_byte_size) for each in groups]
            self.suspects = _suspects(file, frozenset(self.names))
            values = _most_values(file) if self.lists else 0
        rows = self.rows_of(WHOLE)
        self.is_empty = not rows
        # A byte of an image becomes an int64, like all whole numbers.
        size = max(sum(size for _, size in self._groups), 8 * values)
        per_batch = _BATCH_BYTES * rows // max(size, 1)
        self._batch_rows = min(max(per_batch, 1), MAX_ROWS)

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        formats.check_binary(path, formats.PARQUET, "Parquet")

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        first, count = [], 0
        for batch in self.batches():
            first.append(batch.slice(0, rows - count))
            count += first[-1].num_rows
            if count == rows:
                break
        table = pa.Table.from_batches(first)
        pa.parquet.write_table(table, path, version="2.6")  # keeps nanoseconds

    def parts(self, size: int) -> list[Part]:
        """See `Source`: ranges of row groups."""
        starts, filled = [0], 0
        for group, (_, group_size) in enumerate(self._groups):
            if filled and filled + group_size > size:
                starts.append(group)
                filled = 0
            filled += group_size
        return list(map(Part, starts, [*starts[1:], None]))

    def select(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        return self._read(part, list(names))

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        if self.is_empty:
            raise no_row(self.path)
        return self._read(part)

    def _read(
        self, part: Part, names: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        from strategos.components.data_files.sources.structs import flat

        groups = range(len(self._groups))[part.start : part.stop]
        with self._open() as file:
            try:
                for some in [[g] for g in groups] if self._by_group else [groups]:
                    for batch in file.iter_batches(self._batch_rows, some, names):
                        yield flat(batch)
            except (pa.ArrowException, OSError) as error:
                raise UserError(self._unreadable(error)) from error

    def where(self, part: Part, row: int) -> str:
        """See `Source`: a row number from 1."""
        return f"row {self.rows_of(Part(0, part.start)) + row + 1}"

    def count_rows(self, enough: int) -> int:
        """See `Source`: exact, from the file's metadata."""
        return self.rows_of(WHOLE)

    def rows_of(self, part: Part) -> int:
        """See `Source`: from the file's metadata."""
        return sum(rows for rows, _ in self._groups[part.start : part.stop])

    def _open(self) -> pa.parquet.ParquetFile:
        remote = is_remote(self.path)
        try:
            file = storage.open_arrow(self.path) if remote else self.path
            # Of an object, columns are read ahead, in few requests.
            return pa.parquet.ParquetFile(file, pre_buffer=remote)
        except (pa.ArrowException, OSError) as error:
            raise UserError(self._unreadable(error)) from error

    def _unreadable(self, error: Exception) -> str:
        return formats.damaged(self.path, "Parquet", error)


def _has_dictionary(data_type: pa.DataType, nested: bool = False) -> bool:
    """Whether values within lists or structs are encoded by a dictionary."""
    from pyarrow import types

    from strategos.components.data_files.values.arrow_types import is_list

    if types.is_struct(data_type):
        return any(_has_dictionary(field.type, nested=True) for field in data_type)
    if is_list(data_type):
        return _has_dictionary(data_type.value_type, nested=True)
    return nested and types.is_dictionary(data_type)


def _most_values(file: pa.parquet.ParquetFile) -> int:
    """The number of values of the column that has most."""
    metadata = file.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return max(
        sum(group.column(index).num_values for group in groups)
        for index in range(metadata.num_columns)
    )


def _suspects(file: pa.parquet.ParquetFile, names: frozenset[str]) -> frozenset[str]:
    """Columns with a number that float32 may not represent, by the file's statistics.

    Only doubles and decimals; includes columns without statistics.

    Args:
      file: The file.
      names: The columns, those of structs by dotted name.
    """
    from strategos.components.data_files.values import whole_numbers

    metadata, suspects = file.metadata, set()
    for index in range(metadata.num_columns):
        leaf = metadata.schema.column(index)
        if leaf.physical_type == "DOUBLE" or leaf.logical_type.type == "DECIMAL":
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            bounds = (group.column(index).statistics for group in groups)
            if any(map(whole_numbers.may_be_changed, bounds)):
                suspects.add(_column_of(leaf.path, names))
    return frozenset(suspects)


def _column_of(leaf: str, names: frozenset[str]) -> str:
    """The column with a leaf: `x` for the values of its lists, `x.list.element`."""
    while leaf not in names:
        leaf = leaf.rpartition(".")[0]
    return leaf
