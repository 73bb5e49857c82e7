"""Reads, checks and converts rows to predict, as ExampleGen does for training."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import exported
from strategos.components.data_files.sources import Source
from strategos.components.data_files.sources.reading import DEFAULT, Reading
from strategos.components.data_files.sources.source import WHOLE, BadRow
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.errors import BadInputError, Place
from strategos.components.predict import piped
from strategos.components.records import encode
from strategos.components.slow_imports import pa
from strategos.components.targets.label import Label
from strategos.components.wording import choices, nearest

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.data_files.values.features import BadValueError
    from strategos.components.data_files.values.kinds import Kind

Row = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Columns:
    """The raw columns of a model, by name.

    Attributes:
      features: All columns of the schema.
      used: Columns that the prediction depends on.
      unused: Columns that the model parses without using their values.
      label: The label, as `Label.text`.
      classes: Names of the classes; () if unknown.
      heads: Names of the classes of each output of a model with several heads.
      null_values: Spellings of a missing number.
      reading: How the files of the training were read.
      decimal: The decimal mark of the rows to predict.
      files: Columns of the rows to predict that have paths of files, by the folder that
        these are relative to; the content of a file is the value.
    """

    features: Mapping[str, schema_pb2.Feature]
    used: frozenset[str]
    unused: frozenset[str]
    label: str
    classes: tuple[str, ...]
    null_values: tuple[str, ...]
    reading: Reading = DEFAULT
    decimal: str = "."
    heads: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    files: Mapping[str, Path] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Columns:
        """Reads the description of a model's columns.

        Args:
          folder: The SavedModel.

        Raises:
          BadInputError: The model does not describe itself.
        """
        from strategos.components.schema_file import read_schema

        schema_file, description = (
            folder / exported.SCHEMA,
            folder / exported.DESCRIPTION,
        )
        for file in (schema_file, description):
            if not file.exists():
                raise BadInputError(
                    f"{file} is missing: {folder} was not exported by Strategos, so "
                    "its columns are not known. Push it anew."
                )
        schema = read_schema(str(schema_file))
        described = json.loads(description.read_text())
        features = {feature.name: feature for feature in schema.feature}
        used, unused = described["features"], described.get("unused", ())
        if "null_values" not in described:
            print(
                "note: the model does not name its data.null_values; the default ones "
                "are missing values here",
                file=sys.stderr,
            )
        return cls(
            features,
            frozenset(used),
            frozenset(unused),
            described["label"],
            tuple(described.get("classes", ())),
            tuple(described.get("null_values", DEFAULT_NULL_VALUES)),
            Reading.from_json(json.dumps(described.get("reading", {}))),
            heads={
                head: tuple(facts["classes"])
                for head, facts in described.get("heads", {}).items()
            },
        )

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        """The names of the classes of each output that has some."""
        of_outputs = {exported.OUTPUT: self.classes, **self.heads}
        return {name: classes for name, classes in of_outputs.items() if classes}

    @property
    def of_bytes(self) -> list[str]:
        """Used columns of text or bytes."""
        from strategos.components.data_files.values.kinds import Kind

        return [name for name, kind in self._kinds.items() if kind is Kind.BYTES]

    @property
    def needed(self) -> list[str]:
        """Used columns that every row must have."""
        return [name for name in sorted(self.used) if self._is_required(name)]

    def _is_required(self, name: str) -> bool:
        return self.features[name].HasField("shape")

    def check_names(self, where: str, names: Iterable[str]) -> list[str]:
        """Rejects a row or header with a missing or misspelled column.

        Args:
          where: Place of the row or header, for the message.
          names: Columns of the row or header.

        Returns:
          The columns that the training data do not have.

        Raises:
          BadInputError: Names the place and the column.
        """
        known = {*self.features, *Label.of(self.label).withheld}
        extra = [name for name in names if name not in known]
        absent = self.used.difference(names)
        for name in extra:
            near = nearest(name, absent)
            if near:
                raise BadInputError(
                    f"unknown column {name}",
                    place=Place(where),
                    expected=choices(sorted(self.used)),
                    remedy=f"Did you mean `{near}`? If not, rename it.",
                )
        missing = [name for name in self.needed if name not in names]
        if missing:
            raise BadInputError(
                f"the model needs column {choices(missing)}", place=Place(where)
            )
        return extra

    def serialized(self, batch: pa.RecordBatch) -> pa.ChunkedArray:
        """Converts rows to serialized tf.Examples, as ExampleGen does.

        Args:
          batch: Rows as a file has them.

        Returns:
          binary[rows].

        Raises:
          BadValueError: A value is missing (its `value` is None), or is not of its
            column's type.
        """
        return self.encoded(self.converted(batch))

    def converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Converts the used columns to features, as ExampleGen does.

        Args:
          batch: Rows as a file has them.

        Returns:
          A list for each row in each column, null where the value is missing.

        Raises:
          BadValueError: See `serialized`.
        """
        from strategos.components.data_files.values import features, numerals

        nulls = numerals.Nulls(self.null_values, self.decimal)
        if self.files:
            raw_columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name in self.files.keys() & raw_columns:
                raw_columns[name] = piped.contents(
                    name, raw_columns[name], self.files[name]
                )
            batch = pa.RecordBatch.from_pydict(raw_columns)
        converted = features.convert(batch, self._kinds, nulls)
        for name in self.needed:
            row = features.first_missing(converted.column(name))
            if row is not None:
                reason = "is empty, but the model needs a value"
                raise features.BadValueError(name, row, None, reason)
        columns = {name: converted.column(name) for name in self._kinds}
        return pa.RecordBatch.from_pydict(columns)

    def as_converted(self, features: pa.RecordBatch) -> pa.RecordBatch:
        """The used columns of decoded tf.Examples, in the form of `converted`.

        Args:
          features: Lists of any size of offsets; nulls if no row has a value.
        """
        from strategos.components.data_files.values.features import ARROW

        columns = {}
        for name, kind in self._kinds.items():
            index = features.schema.get_field_index(name)
            column = features.column(index) if index >= 0 else None
            if column is None or pa.types.is_null(column.type):
                column = pa.nulls(features.num_rows, pa.list_(ARROW[kind]))
            columns[name] = column.cast(pa.list_(ARROW[kind]))
        return pa.RecordBatch.from_pydict(columns)

    def encoded(self, features: pa.RecordBatch) -> pa.ChunkedArray:
        """Serializes rows of `converted`; binary[rows]."""
        columns = {name: features.column(name) for name in self._kinds}
        for name in filter(self._is_required, self.unused):
            columns[name] = self._fillers(name, features.num_rows)
        return encode.serialize(pa.RecordBatch.from_pydict(columns))

    @property
    def _kinds(self) -> dict[str, Kind]:
        return {name: self._type(name)[1] for name in sorted(self.used)}

    def problem(self, error: BadValueError, where: str) -> BadInputError:
        """The error of a value of a row.

        Args:
          error: From `serialized`.
          where: Place of the row.
        """
        place = Place(f"{where}: column `{error.column}`")
        if error.value is None:
            return BadInputError(error.reason, place=place)
        return BadInputError(
            error.reason,
            place=place,
            received=repr(str(error.value)[:100]),
            expected=self._type(error.column)[0],
        )

    def _fillers(self, name: str, rows: int) -> pa.ListArray:
        """Placeholder values for an unused column that the model parses."""
        from strategos.components.data_files.values import features

        shape = self.features[name].shape
        _, kind, nothing = self._type(name)
        values = [nothing] * math.prod(dim.size for dim in shape.dim)
        return pa.array([values] * rows, pa.list_(features.ARROW[kind]))

    def _type(self, name: str) -> tuple[str, Kind, Any]:
        """Allowed values in words, the kind, and a placeholder value of a column."""
        from strategos.components.data_files.values.kinds import Kind

        types = {
            1: ("text", Kind.BYTES, b""),
            2: ("an integer", Kind.INT, 0),
            3: ("a number", Kind.FLOAT, 0.0),
        }
        return types[self.features[name].type]


def _source(path: str, reading: Reading) -> Source:
    """Opens a file by the format of its suffix, or else of its first bytes."""
    from strategos.components.data_files import formats, sources

    if sources.name_of(path):
        return sources.open_source(path, reading)
    kind = sources.SOURCES[formats.suffix(formats.head(path)).removeprefix(".")]
    opened: Source = kind.open(path, reading)
    return opened


@dataclasses.dataclass(frozen=True)
class Asked:
    """A row to predict.

    Attributes:
      extra: Values of columns that the training data do not have.
      example: Serialized tf.Example; None if the row has a problem.
      problem: Why the row cannot be predicted; "" for none.
      features: Rows of `Columns.converted`, and the index of this one.
    """

    extra: Mapping[str, Any]
    example: bytes | None
    problem: str = ""
    features: tuple[pa.RecordBatch, int] | None = None


def of_file(path: str, columns: Columns, mark: bool = False) -> Iterator[Asked]:
    """Yields the rows of a file."""
    source, first, index = _source(path, columns.reading), 0, 0
    columns = dataclasses.replace(columns, decimal=columns.reading.csv.decimal)
    malformed: dict[int, BadRow] = {}
    if mark:
        source.malformed = malformed
    extra = columns.check_names(path, source.every_name())

    def where(row: int) -> str:
        return f"{path}: {source.place_of(WHOLE, first + row)}"

    for batch in source.batches():
        for requested in _asked(batch, columns, where, extra, mark):
            while index in malformed:
                yield Asked({}, None, malformed[index].problem(path))
                index += 1
            yield requested
            index += 1
        first += batch.num_rows
    for each in sorted(malformed):
        if each >= index:
            yield Asked({}, None, malformed[each].problem(path))


def _asked(
    batch: pa.RecordBatch,
    columns: Columns,
    where: Callable[[int], str],
    extra: Sequence[str],
    mark: bool,
) -> Iterator[Asked]:
    """Yields the rows of a batch; with `mark` also those with a problem."""
    from strategos.components.data_files.values import features

    try:
        converted = columns.converted(batch)
    except features.BadValueError as error:
        problem = columns.problem(error, where(error.row))
        if not mark:
            raise problem from error
        if batch.num_rows == 1:
            (values,) = _values(batch, extra)
            yield Asked(values, None, " ".join(str(problem).split()))
            return
        half = batch.num_rows // 2
        yield from _asked(batch.slice(0, half), columns, where, extra, mark)
        after = batch.slice(half)
        yield from _asked(after, columns, lambda row: where(half + row), extra, mark)
        return
    examples = columns.encoded(converted).to_pylist()
    rows = zip(_values(batch, extra), examples, strict=True)
    for index, (values, example) in enumerate(rows):
        yield Asked(values, example, features=(converted, index))


def of_texts(rows: Sequence[Row], columns: Columns, mark: bool) -> list[Asked]:
    """The rows; "" is a missing value."""
    extra: dict[str, None] = {}
    for number, row in enumerate(rows, start=1):
        extra |= dict.fromkeys(columns.check_names(f"row {number}", row))
    texts = {
        name: pa.array([row.get(name) or None for row in rows], pa.string())
        for name in sorted({*columns.used, *extra})
    }
    batch = pa.RecordBatch.from_pydict(texts)
    return list(_asked(batch, columns, lambda row: f"row {row + 1}", [*extra], mark))


def _values(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """The values of each row in some columns."""
    indices = map(batch.schema.get_field_index, names)
    columns = [
        _travelling(batch.column(index)) if index >= 0 else [None] * batch.num_rows
        for index in indices  # below 0 if these rows lack the column
    ]
    if not names:
        return [{}] * batch.num_rows
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _travelling(column: pa.Array) -> list[Any]:
    """The values of a column; bytes as text, as TFRecord has all text as bytes."""
    return list(map(_as_text, column.to_pylist()))


def _as_text(value: Any) -> Any:
    """Text of UTF-8 bytes, also in a list; other bytes stay."""
    if isinstance(value, list):
        return list(map(_as_text, value))
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value
