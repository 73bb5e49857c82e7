"""Finds the values that a schema forbids, row by row: outside of a domain, or missing.

A fold over shards of the data, of whole Arrow batches. TFDV says that there are such
values; its statistics do not know in which rows.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.data_files.findings import rejected
from strategos.components.data_files.pieces import Piece, Shard
from strategos.components.data_files.values import features, numerals
from strategos.components.data_files.values.bad_values import bad_value
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import UserError
from strategos.components.files import storage

SHOWN = 10
"""Rows that a message names."""


class Cell(NamedTuple):
    """A value that the schema forbids.

    Attributes:
      piece: The piece that the row is from.
      row: Index of the row in the piece.
      column: The column.
      value: The value, as text; "" if it is missing.
      reason: The rule of the schema that it breaks.
    """

    piece: Piece
    row: int
    column: str
    value: str
    reason: str

    def __str__(self) -> str:
        value = f"{self.value!r}: " * bool(self.value)
        return f"{self.piece.place(self.row)}: `{self.column}`: {value}{self.reason}"


@dataclasses.dataclass
class Forbidden:
    """The forbidden values of the shards read so far.

    Attributes:
      counts: Number of forbidden values by column.
      first: The first ones of each column, `SHOWN` at most.
      unreadable: Rows that cannot be read, if the files are read tolerantly.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    first: dict[str, list[Cell]] = dataclasses.field(default_factory=dict)
    unreadable: rejected.Rejected = dataclasses.field(default_factory=rejected.Rejected)

    def add(self, cell: Cell) -> None:
        """Adds a value."""
        self.counts[cell.column] = self.counts.get(cell.column, 0) + 1
        first = self.first.setdefault(cell.column, [])
        if len(first) < SHOWN:
            first.append(cell)

    def merge(self, later: Forbidden) -> Forbidden:
        """Adds the values of later shards; returns itself."""
        for name, count in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
            both = [*self.first.get(name, ()), *later.first[name]]
            self.first[name] = both[:SHOWN]
        self.unreadable = self.unreadable.merge(later.unreadable)
        return self

    def shown(self) -> list[str]:
        """Up to `SHOWN` of the values with file and line, some of each column.

        Reads each file up to the places that are shown.
        """
        each = max(SHOWN // max(len(self.first), 1), 1)
        cells = [
            cell for name in sorted(self.first) for cell in self.first[name][:each]
        ]
        return [*self.unreadable.first, *map(str, cells)][:SHOWN]


@dataclasses.dataclass(frozen=True)
class Search:
    """Finds the forbidden values of a shard.

    Attributes:
      schema: The schema, serialized.
      columns: The columns to look at, which the schema declares.
      nulls: Spellings of a missing value in columns of numbers.
      folder: Folder or URL for a file of JSON lines of each shard, with every value;
        "" for none.
    """

    schema: bytes
    columns: Collection[str]
    nulls: numerals.Nulls
    folder: str = ""

    def __call__(self, shard: Shard) -> Forbidden:
        """Finds the values of a shard; a UserError names a row that cannot be read."""
        schema = schema_pb2.Schema.FromString(self.schema)
        wanted = {
            feature.name: feature
            for feature in schema.feature
            if feature.name in self.columns and _type(feature) in Kind.__members__
        }
        forbidden, lines = Forbidden(), []
        if not wanted:
            return forbidden
        for piece in map(Piece.fresh, shard.pieces):
            of_piece = self._cells(piece, wanted, schema, forbidden.unreadable)
            cells = sorted(of_piece, key=lambda cell: cell.row)
            for cell in cells:
                forbidden.add(cell)
            forbidden.unreadable.end(piece)
            if self.folder:
                lines += list(_lines(piece, cells))
        if self.folder:
            forbidden.unreadable.write(self.folder, shard.number)
            path = os.path.join(self.folder, f"{shard.number:05}.jsonl")
            storage.write(path, "".join(lines))
        return forbidden

    def _cells(
        self,
        piece: Piece,
        wanted: Mapping[str, schema_pb2.Feature],
        schema: schema_pb2.Schema,
        unreadable: rejected.Rejected,
    ) -> Iterator[Cell]:
        kinds = {name: Kind[_type(feature)] for name, feature in wanted.items()}

        def convert(batch: pa.RecordBatch) -> pa.RecordBatch:
            return features.convert(batch, kinds, self.nulls)

        def explain(error: features.BadValueError, row: int) -> UserError:
            return bad_value(piece.place, row, error, kinds[error.column])

        known = [n for n in kinds if piece.source.open_ended or n in piece.source.names]
        runs = rejected.convertible_rows(piece, convert, explain, unreadable, known)
        for first, raw in runs:
            try:
                batch = convert(raw)
            except features.BadValueError as error:
                raise explain(error, first) from error
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for row, value, reason in _forbidden(column, wanted[name], schema):
                    yield Cell(piece, first + row, name, value, reason)


def _type(feature: schema_pb2.Feature) -> str:
    return schema_pb2.FeatureType.Name(feature.type)


def _lines(piece: Piece, cells: Sequence[Cell]) -> Iterator[str]:
    """A line of JSON for each of the forbidden values of a piece."""
    rows = sorted({cell.row for cell in cells})
    places = dict(zip(rows, piece.source.places(piece.part, rows), strict=True))
    for cell in cells:
        file, _, place = places[cell.row].rpartition(": ")
        line: dict[str, Any] = {"file": file, "place": place}
        line |= {"column": cell.column, "value": cell.value, "reason": cell.reason}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _forbidden(
    column: pa.ListArray, feature: schema_pb2.Feature, schema: schema_pb2.Schema
) -> Iterator[tuple[int, str, str]]:
    """Yields row, value and reason of each value of a column that is forbidden.

    Args:
      column: A list a row: null or without items if missing.
      feature: The column in the schema.
      schema: The schema, for its common domains.
    """
    if feature.presence.min_fraction == 1:
        for row in np.flatnonzero(features.is_missing(column)).tolist():
            yield row, "", "no value, which the schema requires in each row"
    values = pc.list_flatten(column)
    bad, reason = _outside(values, feature, schema)
    places = np.flatnonzero(bad)
    if len(places):
        rows = pc.list_parent_indices(column).take(pa.array(places)).to_pylist()
        for row, value in zip(rows, values.take(pa.array(places)), strict=True):
            yield row, _text(value.as_py()), reason


def _outside(
    values: pa.Array, feature: schema_pb2.Feature, schema: schema_pb2.Schema
) -> tuple[np.ndarray, str]:
    """Whether each value is outside of its feature's domain, and the reason to give."""
    domain = feature.WhichOneof("domain_info")
    if domain in ("int_domain", "float_domain") and feature.type != schema_pb2.BYTES:
        bounds = getattr(feature, domain)
        low = bounds.min if bounds.HasField("min") else -np.inf
        high = bounds.max if bounds.HasField("max") else np.inf
        numbers = values.to_numpy(zero_copy_only=False)
        bad = (numbers < low) | (numbers > high)
        if domain == "float_domain" and bounds.disallow_nan:
            bad |= np.isnan(numbers)
        form = "g" if domain == "float_domain" else ""
        return bad, f"outside of the domain, {low:{form}} to {high:{form}}"
    if domain in ("domain", "string_domain") and feature.type == schema_pb2.BYTES:
        allowed, name = feature.string_domain.value, feature.name
        if domain == "domain":
            name = feature.domain
            allowed = [
                v for d in schema.string_domain if d.name == name for v in d.value
            ]
        known = pa.array([text.encode() for text in allowed], values.type)
        bad = ~pc.is_in(values, value_set=known).to_numpy(zero_copy_only=False)
        return bad, f"not in the domain `{name}`"
    return np.zeros(len(values), bool), ""


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
