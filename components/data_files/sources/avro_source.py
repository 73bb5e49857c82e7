"""Avro container files, with errors that name file and record."""

from __future__ import annotations

import contextlib
import functools
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.source import (
    MAX_ROWS,
    WHOLE,
    Part,
    Source,
)
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.slow_imports import pa

_BATCH_ROWS = MAX_ROWS // 4  # Python objects until they are columns
_BIGGER = ("int", "long", "float", "double")  # each holds the ones before it


class AvroSource(Source):
    """An Avro container file; the fields of a record are columns."""

    def __init__(self, path: str):
        """See `Source`."""
        from strategos.components.data_files.sources import structs

        self.path = path
        with self._reader() as reader:
            schema = reader.writer_schema
        row = self._arrow_type(schema, {}, "")
        self._row = row
        self._plain = _spelled if '"uuid"' in str(schema).replace("'", '"') else None
        self.declare(structs.flat_schema(list(row)))

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        formats.check_binary(path, formats.AVRO, "Avro")

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        import fastavro

        with self._reader() as reader, open(path, "wb") as copy:
            first = itertools.islice(reader, rows)
            fastavro.writer(copy, reader.writer_schema, first)

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        from strategos.components.data_files.sources import structs

        rows = 0
        with self._reader() as reader:
            while some := self._next(reader, rows):
                rows += len(some)
                column = self._column(some, rows - len(some))
                yield structs.flat(
                    pa.RecordBatch.from_arrays(
                        column.flatten(), [field.name for field in self._row]
                    )
                )
        if not rows:
            raise no_row(self.path)

    def rows_of(self, part: Part) -> int:
        """See `Source`: from the headers of the file's blocks."""
        import fastavro

        with self._problems(0), storage.open_binary(self.path) as file:
            return sum(block.num_records for block in fastavro.block_reader(file))

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Any]:
        import fastavro

        with self._problems(0):
            file = storage.open_binary(self.path)
        with file:
            with self._problems(0):
                reader = fastavro.reader(file)
            yield reader

    def _next(self, reader: Any, rows: int) -> list[Any]:
        with self._problems(rows):
            some = list(itertools.islice(reader, _BATCH_ROWS))
        return some if self._plain is None else list(map(self._plain, some))

    def _column(self, rows: list[Any], first: int) -> pa.StructArray:
        try:
            return pa.array(rows, self._row)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            reason = str(error)
        raise UserError(
            f"{self.path}: records {first + 1} to {first + len(rows)}: a value does "
            f"not fit the type that the file declares: {reason}. Write the file again."
        )

    @contextlib.contextmanager
    def _problems(self, row: int) -> Iterator[None]:
        """Explains errors of fastavro, of any type, for a damaged file."""
        try:
            yield
        except (UserError, MemoryError):
            raise
        except OSError as error:
            if error.strerror:
                raise UserError(formats.unreadable(self.path, error)) from error
            raise UserError(formats.damaged(self.path, "Avro", error)) from error
        except Exception as error:
            text = str(error)
            if "codec" in text and "install" in text:
                raise UserError(
                    f"{self.path}: cannot be read as Avro: {text}. Install the package "
                    "for this codec, or write the file with the codec `deflate`."
                ) from error
            place = f"after record {row}: {type(error).__name__}: {text}"
            raise UserError(formats.damaged(self.path, "Avro", place)) from error

    def _arrow_type(
        self, schema: Any, named: dict[str, pa.DataType], name: str
    ) -> pa.DataType:
        """The Arrow type for a type of Avro.

        Args:
          schema: The parsed type.
          named: Types that a name stands for, added to.
          name: The column's name, for messages.
        """
        if isinstance(schema, str):
            kind, attributes = schema, {}
        elif isinstance(schema, list):
            return self._of_union(schema, named, name)
        else:
            kind, attributes = schema["type"], schema
        if not isinstance(kind, str):  # {"type": {"type": "long", …}}
            return self._arrow_type(kind, named, name)
        if kind in named:
            return named[kind]
        made = _logical(attributes) or _primitives().get(kind)
        if kind == "record":
            below = f"{name}." if name else ""
            made = pa.struct(
                (
                    each["name"],
                    self._arrow_type(each["type"], named, below + each["name"]),
                )
                for each in schema["fields"]
            )
        elif kind == "array":
            made = pa.list_(self._arrow_type(schema["items"], named, name))
        if made is None:
            raise self._unsupported(name, kind)
        if "name" in attributes:
            named[attributes["name"]] = made
        return made

    def _of_union(
        self, branches: list[Any], named: dict[str, pa.DataType], name: str
    ) -> pa.DataType:
        values = [branch for branch in branches if branch != "null"]
        if all(branch in _BIGGER for branch in values if isinstance(branch, str)) and (
            all(isinstance(branch, str) for branch in values) and values
        ):
            return _primitives()[max(values, key=_BIGGER.index)]
        if len(values) > 1:
            kinds = ", ".join(
                each if isinstance(each, str) else str(each["type"]) for each in values
            )
            raise self._unsupported(name, f"union of {kinds}")
        return self._arrow_type(values[0], named, name) if values else pa.null()

    def _unsupported(self, name: str, kind: str) -> UserError:
        if not name:
            return UserError(
                f"{self.path}: has values of the Avro type {kind}; rows are records: "
                "write each row as a `record`."
            )
        return UserError(
            f"{self.path}: column `{name}` has the Avro type {kind}, which a "
            "tf.Example cannot hold. Expected numbers, text, bytes, times, records or "
            "arrays of these; flatten the column or take it out."
        )


@functools.cache
def _primitives() -> Mapping[str, pa.DataType]:
    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "fixed": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
    }


def _logical(attributes: Mapping[str, Any]) -> pa.DataType | None:
    """The Arrow type of a logical type that fastavro converts; None for others."""

    def decimal() -> pa.DataType:
        digits = attributes["precision"]
        make = pa.decimal128 if digits <= 38 else pa.decimal256
        return make(digits, attributes.get("scale", 0))

    made: dict[str, Callable[[], pa.DataType]] = {
        "int-date": pa.date32,
        "int-time-millis": lambda: pa.time32("ms"),
        "long-time-micros": lambda: pa.time64("us"),
        "long-timestamp-millis": lambda: pa.timestamp("ms", "UTC"),
        "long-timestamp-micros": lambda: pa.timestamp("us", "UTC"),
        "long-local-timestamp-millis": lambda: pa.timestamp("ms"),
        "long-local-timestamp-micros": lambda: pa.timestamp("us"),
        "bytes-decimal": decimal,
        "fixed-decimal": decimal,
        "string-uuid": pa.string,
    }
    make = made.get(f"{attributes.get('type')}-{attributes.get('logicalType')}")
    return make() if make else None


def _spelled(value: Any) -> Any:
    """A value with each UUID as text."""
    if isinstance(value, dict):
        return {name: _spelled(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_spelled(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value
