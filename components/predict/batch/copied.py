"""Columns of the data that stand beside the predictions, with the types of the files.

All files of an output have the same columns. So a copied column has one type for all
data files: from their declarations, or, where files declare none (JSON lines,
TFRecord), from all values, which are read once for that. Text of CSV stays text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyarrow import types

from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.shards import ShardRunner
from strategos.components.data_files.sources import Source
from strategos.components.data_files.values.arrow_types import is_list, is_text
from strategos.components.errors import BadInputError, Place, UserError

Seen = dict[str, dict[pa.DataType, str]]
"""By column: each type, with the first file that has values of the type."""


def types_of(
    runner: ShardRunner, data: Sequence[Shard], names: Sequence[str]
) -> dict[str, pa.DataType]:
    """The type of each copied column.

    Args:
      runner: Runs the work on the shards.
      data: All shards.
      names: The columns.

    Raises:
      BadInputError: No row has a column, or a column has types that have no type in
        common.
    """
    if not names:
        return {}
    sources = {p.source.path: p.source for each in data for p in each.pieces}
    seen: Seen = {name: {} for name in names}
    for source in sources.values():
        if not source.open_ended:
            _add(seen, {name: _declared(source, name) for name in names}, source.path)
    unknown = [each for each in data if any(p.source.open_ended for p in each.pieces)]
    if unknown:
        by_column = runner.fold(unknown, _SeeTypes(tuple(names)), _merged)
        for name, by_type in by_column.items():
            seen[name] = {**by_type, **seen[name]}
    for name, by_type in seen.items():
        if not by_type:
            raise BadInputError(f"no row has a column `{name}`", key="--columns")
    return {name: _common(name, by_type) for name, by_type in seen.items()}


def cast(piece: Piece, batch: pa.RecordBatch, name: str, to: pa.DataType) -> pa.Array:
    """A copied column of some rows.

    Args:
      piece: The rows' piece, for messages.
      batch: The rows, as the file has them.
      name: The column; null in rows without it.
      to: Its type in the output.

    Raises:
      UserError: A value does not fit the type.
    """
    index = batch.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(batch.num_rows, to)
    column = batch.column(index)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count == len(column):
        return pa.nulls(len(column), to)
    try:
        return column if column.type == to else column.cast(to)
    except pa.ArrowInvalid as error:
        raise UserError(
            f"a value of type {column.type} does not fit {to}, the type of the column "
            f"in all files ({error})",
            place=Place(f"{piece.source.path}: column `{name}`"),
            remedy="Leave the column out of --columns, or write it in one type.",
        ) from error


@dataclasses.dataclass(frozen=True)
class _SeeTypes:
    """Finds the types of columns in files that declare none."""

    names: tuple[str, ...]

    def __call__(self, shard: Shard) -> Seen:
        seen: Seen = {name: {} for name in self.names}
        for piece in map(Piece.fresh, shard.pieces):
            if not piece.source.open_ended:
                continue
            for batch in piece.source.select(piece.part, self.names):
                fields = {each.name: each.type for each in batch.schema}
                own = {name: fields[name] for name in self.names if name in fields}
                _add(seen, own, piece.source.path)
        return seen


def _add(seen: Seen, by_column: Mapping[str, pa.DataType], path: str) -> None:
    for name, data_type in by_column.items():
        plain = _plain(data_type)
        seen[name].setdefault(plain, path)


def _merged(earlier: Seen, later: Seen) -> Seen:
    return {name: {**later[name], **by_type} for name, by_type in earlier.items()}


def _declared(source: Source, name: str) -> pa.DataType:
    declared = getattr(source, "types", {})
    return declared.get(name, pa.string())


def _plain(data_type: pa.DataType) -> pa.DataType:
    """The type without an encoding of its values."""
    if is_list(data_type):
        return pa.list_(_plain(data_type.value_type))
    if types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    return data_type


def _common(name: str, by_type: Mapping[pa.DataType, str]) -> pa.DataType:
    known = {each: path for each, path in by_type.items() if not _is_null(each)}
    if not known:
        return pa.string()
    if len(known) == 1:
        return next(iter(known))
    lists = [is_list(each) for each in known]
    items = {each.value_type if is_list(each) else each for each in known}
    common = _of_values({each for each in items if not types.is_null(each)})
    if common is None or (any(lists) and not all(lists)):
        (first, one), (second, other), *_ = known.items()
        raise BadInputError(
            f"`{name}` is {first} in {one} and {second} in {other}",
            key="--columns",
            remedy="Leave it out, or write the files with one type.",
        )
    return pa.list_(common) if any(lists) else common


def _is_null(data_type: pa.DataType) -> bool:
    return types.is_null(data_type)


def _of_values(kinds: set[pa.DataType]) -> pa.DataType | None:
    """A type for all values of some types, exact; None without one."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if all(map(is_text, kinds)):
        return pa.large_string()
    if all(types.is_signed_integer(each) for each in kinds):
        return pa.int64()
    if all(types.is_floating(each) for each in kinds):
        return pa.float64()
    # Whole numbers beyond 53 bits are rejected when they are cast.
    if all(types.is_floating(each) or types.is_signed_integer(each) for each in kinds):
        return pa.float64()
    if all(types.is_timestamp(each) for each in kinds):
        zones = {each.tz for each in kinds}
        return pa.timestamp("ns", zones.pop()) if len(zones) == 1 else None
    return None
