"""Structs as columns: the field `city` of a struct `home` is the column `home.city`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

NO_COLUMN = ""
"""Name of the column of rows that have none."""


def flat_schema(schema: Iterable[pa.Field]) -> pa.Schema:
    """The columns of a file, with those of its structs by dotted name.

    Args:
      schema: The columns in the file.
    """
    return pa.schema([leaf for field in schema for leaf in _leaves(field.name, field)])


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns of `flat_schema`; a missing struct has no values."""
    if not any(types.is_struct(field.type) for field in batch.schema):
        return batch
    names: list[str] = []
    columns: list[pa.Array] = []
    pending = list(zip(batch.schema.names, batch.columns, strict=True))[::-1]
    while pending:
        name, column = pending.pop()
        if types.is_struct(column.type):
            fields = [f"{name}.{field.name}" for field in column.type]
            # `flatten`, not `field`: it takes the nulls of the struct over.
            pending += list(zip(fields, column.flatten(), strict=True))[::-1]
        else:
            names.append(name)
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names)


def _leaves(name: str, field: pa.Field) -> list[pa.Field]:
    if not types.is_struct(field.type):
        return [pa.field(name, field.type)]
    return [
        leaf for child in field.type for leaf in _leaves(f"{name}.{child.name}", child)
    ]


def empty(rows: int) -> pa.RecordBatch:
    """Rows without any column; a batch needs one to know their number."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [NO_COLUMN])


def unlisted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with a column of single values for each of lists without several.

    Args:
      batch: Columns of lists, without null values.
    """
    columns = [_unlisted(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _unlisted(column: pa.Array) -> pa.Array:
    if types.is_null(column.type):
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    if pc.max(lengths).as_py() > 1:
        return column
    missing = pc.equal(lengths, 0)
    indices = pc.subtract(pc.cumulative_sum(lengths), 1).cast(pa.int64())
    indices = pc.if_else(missing, pa.scalar(None, pa.int64()), indices)
    return column.flatten().take(indices)
