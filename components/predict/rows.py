"""Reads, checks and converts rows to predict, as ExampleGen does for training."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import errors, exported
from strategos.components.data_files.sources.reading import DEFAULT, Reading
from strategos.components.data_files.values import DEFAULT_NULL_VALUES
from strategos.components.errors import BadInputError, Place, UserError
from strategos.components.targets.label import Label
from strategos.components.wording import choices, nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.data_files.sources import Source
    from strategos.components.data_files.values.features import BadValueError
    from strategos.components.data_files.values.kinds import Kind

Row = Mapping[str, str]

STDIN = "-"
"""Stands for standard input in place of a path."""


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
        known = {*self.features, *Label.of(self.label).columns}
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

    def examples(
        self, batch: pa.RecordBatch, where: Callable[[int], str]
    ) -> list[bytes]:
        """Converts rows to serialized tf.Examples, as ExampleGen does.

        Args:
          batch: Rows as a file has them.
          where: Returns the place of the row with this index in `batch`.

        Raises:
          BadInputError: A value is missing, or is not of its column's type.
        """
        from strategos.components.data_files.values import features

        try:
            return self.serialized(batch).to_pylist()
        except features.BadValueError as error:
            raise self.problem(error, where(error.row)) from error

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
        import pyarrow as pa

        from strategos.components.data_files.values import features, numerals
        from strategos.components.records import encode

        kinds = {name: self._type(name)[1] for name in sorted(self.used)}
        nulls = numerals.Nulls(self.null_values, self.decimal)
        converted = features.convert(batch, kinds, nulls)
        for name in self.needed:
            row = features.first_missing(converted.column(name))
            if row is not None:
                reason = "is empty, but the model needs a value"
                raise features.BadValueError(name, row, None, reason)
        columns = {name: converted.column(name) for name in kinds}
        for name in filter(self._is_required, self.unused):
            columns[name] = self._fillers(name, batch.num_rows)
        return encode.serialize(pa.RecordBatch.from_pydict(columns))

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
        import pyarrow as pa

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


@contextlib.contextmanager
def on_disk(rows: str) -> Iterator[str]:
    """Yields the path of the rows; for standard input and pipes, of a copy.

    Raises:
      BadInputError: The rows cannot be read; the message names `rows`, not the copy.
    """
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        path = _copied(rows, folder) if _is_piped(rows) else rows
        try:
            yield path
        except UserError as error:
            described = {**error.to_json(), "type": BadInputError.__name__}
            name = "standard input" if rows == STDIN else rows
            text = json.dumps(described).replace(json.dumps(path)[1:-1], name)
            raise errors.from_json(json.loads(text)) from error


def _is_piped(rows: str) -> bool:
    """Whether rows can be read only once: sources seek, and read again for errors."""
    if rows == STDIN:
        return True
    try:
        return stat.S_ISFIFO(os.stat(rows).st_mode)
    except OSError as error:
        raise BadInputError(str(error.strerror), place=Place(rows)) from error


def _copied(rows: str, folder: str) -> str:
    """Copies standard input or a pipe to a file with the suffix of its format."""
    from strategos.components.data_files import formats

    opened = os.dup(0) if rows == STDIN else rows
    with open(opened, "rb") as source, open(f"{folder}/rows", "wb") as copy:
        shutil.copyfileobj(source, copy)
    suffix = formats.suffix(formats.head(f"{folder}/rows"))
    return shutil.move(f"{folder}/rows", f"{folder}/rows{suffix}")


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
    """

    extra: Mapping[str, Any]
    example: bytes | None
    problem: str = ""


def of_file(path: str, columns: Columns, mark: bool = False) -> Iterator[Asked]:
    """Yields the rows of a file."""
    from strategos.components.data_files.sources.source import WHOLE, BadRow

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
    try:
        examples = columns.examples(batch, where)
    except BadInputError as error:
        if not mark:
            raise
        if batch.num_rows == 1:
            (values,) = _values(batch, extra)
            yield Asked(values, None, " ".join(str(error).split()))
            return
        half = batch.num_rows // 2
        yield from _asked(batch.slice(0, half), columns, where, extra, mark)
        after = batch.slice(half)
        yield from _asked(after, columns, lambda row: where(half + row), extra, mark)
        return
    for values, example in zip(_values(batch, extra), examples, strict=True):
        yield Asked(values, example)


def of_texts(rows: Sequence[Row], columns: Columns, mark: bool) -> list[Asked]:
    """The rows; "" is a missing value."""
    import pyarrow as pa

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
        batch.column(index).to_pylist() if index >= 0 else [None] * batch.num_rows
        for index in indices  # below 0 if these rows lack the column
    ]
    if not names:
        return [{}] * batch.num_rows
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
