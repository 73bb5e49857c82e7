"""Files of JSON objects, one a line, with errors that name file and line."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from strategos.components.data_files import formats
from strategos.components.data_files.sources.names import no_row
from strategos.components.data_files.sources.source import WHOLE, BadRow, Part
from strategos.components.data_files.sources.undeclared import OpenSource, in_runs
from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.slow_imports import pa

_BLOCK_BYTES = 4 << 20
_EXACT = 2.0**53  # float64 represents all whole numbers up to here
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (OSError, EOFError, zlib.error)


class JsonSource(OpenSource):
    """JSON lines: each line is the object of a row.

    A key that a row lacks, and `null`, is a missing value. The keys of an object within
    a row are columns by dotted name. Malformed is a line that is no JSON object.
    """

    def __init__(self, path: str):
        """See `Source`."""
        self.path = path
        self._see_head()

    @classmethod
    def check(cls, path: str) -> None:
        """See `Source`."""
        head = formats.unpacked(path, formats.head(path))
        if re.match(rb"(\xef\xbb\xbf)?\s*\[", head):
            raise UserError(
                f"{path}: is one JSON array. Write each row as an object on a line of "
                "its own, in pandas by `to_json(path, orient='records', lines=True)`."
            )
        if head.strip() and not re.match(rb"(\xef\xbb\xbf)?\s*\{", head):
            description = formats.identify(head) or ("no JSON", "Expected a `{` first")
            raise UserError(f"{path}: is {description[0]}. {description[1]}.")

    def parts(self, size: int) -> list[Part]:
        """See `Source`: a part has the lines that begin in it."""
        if formats.compression(self.path):
            return [WHOLE]
        (status,) = storage.statuses([self.path])
        starts = range(0, max(status.size - size, 0) + 1, size)
        return list(map(Part, starts, [*starts[1:], None]))

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        rows, line, parse = 0, 0, _Parser()
        for raw in self._lines(part):
            lines = list(filter(bytes.strip, raw))
            for run in in_runs(lines, parse, rows) if lines else ():
                if run.batch is None:
                    index = run.first - rows
                    number = line + _place_of(raw, index)
                    place = f"line {number + self._lines_before(part)}"
                    self.reject(run.first, BadRow(place, *self._why(lines[index])))
                else:
                    yield from self._in_slices(run.batch)
            rows, line = rows + len(lines), line + len(raw)
        if not rows and part == WHOLE:
            raise no_row(self.path)

    def copy_first(self, rows: int, path: str) -> None:
        """See `Source`."""
        lines = (line for some in self._lines(WHOLE) for line in some)
        first = list(islice(filter(bytes.strip, lines), rows))
        formats.write_packed(path, b"".join(line + b"\n" for line in first))

    def count_rows(self, enough: int) -> int:
        """See `Source`: counts lines."""
        rows = 0
        for lines in self._lines(WHOLE):
            rows += _count(lines)
            if rows >= enough:
                return enough
        return rows

    def where(self, part: Part, row: int) -> str:
        """See `Source`: a line number from 1."""
        with formats.unpacked_file(self.path) as file:
            number, index = 0, -1
            if part.start:
                number = _count_lines(file, part.start - 1) + 1
                file.readline()
            for line in file:
                number, index = number + 1, index + bool(line.strip())
                if index == row:
                    break
        return f"line {number}"

    def rows_of(self, part: Part) -> int:
        """See `Source`: counts lines; reads them if some may be malformed."""
        if self.malformed is not None:
            return super().rows_of(part)
        return sum(map(_count, self._lines(part)))

    def _lines_before(self, part: Part) -> int:
        """The number of lines before those of a part."""
        if not part.start:
            return 0
        with formats.unpacked_file(self.path) as file:
            return _count_lines(file, part.start - 1) + 1

    def _lines(self, part: Part) -> Iterator[list[bytes]]:
        """Yields the lines of a part, those of some MiB at once."""
        try:
            with formats.unpacked_file(self.path) as file:
                position = part.start
                if part.start:  # a line that begins before belongs to the part before
                    file.seek(part.start - 1)
                    position += len(file.readline()) - 1
                while part.stop is None or position < part.stop:
                    most = _BLOCK_BYTES
                    if part.stop is not None:
                        most = min(most, part.stop - position)
                    block = file.read(most)
                    if not block:
                        return
                    if not block.endswith(b"\n"):
                        block += file.readline()
                    if not position:
                        position = len(block)
                        block = block.removeprefix(_BOM)
                    else:
                        position += len(block)
                    yield block.removesuffix(b"\n").split(b"\n")
        except _UNREADABLE as error:
            raise UserError(self._unreadable(error)) from error

    def _why(self, line: bytes) -> tuple[str, str]:
        """Why a line is malformed, and its text."""
        text = line.decode("utf-8", "replace").strip()
        try:
            line.decode("utf-8")
            row = json.loads(line, object_pairs_hook=_unique)
        except UnicodeDecodeError as error:
            return f"is not UTF-8 text: byte 0x{line[error.start]:02x}", text
        except ValueError as error:
            reason = f"is not a JSON object: {error}. Each row is an object on one line"
            return reason, text
        if not isinstance(row, dict):
            kind = "null" if row is None else type(row).__name__
            return f"is {kind}, not an object", text
        return _odd(row), text

    def _unreadable(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.strerror:
            return formats.unreadable(self.path, error)
        return (
            f"{self.path}: cannot be read: {error}. The file is cut off or damaged: "
            "write or copy it again."
        )


def _count_lines(file: IO[bytes], stop: int) -> int:
    """The number of lines that end before the byte `stop`, where reading goes on."""
    lines = 0
    while stop:
        block = file.read(min(stop, _BLOCK_BYTES))
        stop -= len(block)
        lines += block.count(b"\n")
    return lines


def _count(lines: Sequence[bytes]) -> int:
    """The number of lines that are not blank."""
    return sum(1 for _ in filter(bytes.strip, lines))


def _place_of(lines: Sequence[bytes], index: int) -> int:
    """The number, from 1, of the line that is not blank with this index."""
    numbers = (number for number, line in enumerate(lines, 1) if line.strip())
    return next(islice(numbers, index, None))


class _Parser:
    """Parses lines; Arrow takes some texts for times, which stay texts here."""

    def __init__(self) -> None:
        self._texts: dict[str, pa.Field] = {}  # so far taken for times

    def __call__(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Returns None if the lines have no types in common, or no meaning."""
        from strategos.components.data_files.sources import structs

        data = b"\n".join(lines)
        if any(line.strip() == b"null" for line in lines):
            return None  # to Arrow, a row without values
        table = _read(data, self._texts) if self._texts else None
        if table is None:
            table = _read(data, {})
        if table is None:
            return None
        times = {
            field.name: pa.field(field.name, _without_times(field.type))
            for field in table.schema
            if _without_times(field.type) != field.type
        }
        if times:
            self._texts |= times
            table = _read(data, self._texts)
            if table is None:  # a known text is a number here
                table = _read(data, times)
        if table is None or table.num_rows != len(lines):
            return None
        if not table.num_columns:
            return structs.empty(len(lines))
        batch = structs.flat(table.combine_chunks().to_batches()[0])
        if len(set(batch.schema.names)) < batch.num_columns:
            return None
        return batch if _is_exact(batch, lines) else None


def _read(data: bytes, known: Mapping[str, pa.Field]) -> pa.Table | None:
    """Parses JSON objects; None if they have no types in common, or no meaning.

    Args:
      data: The lines.
      known: Some columns with their types.
    """
    try:
        data.decode("utf-8")
        table = _parsed(data, list(known.values()))
        if not _is_valid(table):
            table = _with_gaps(data, table)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table if _is_valid(table) else None


def _parsed(data: bytes, known: Iterable[pa.Field]) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(data),
        pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa.json.ParseOptions(explicit_schema=pa.schema(list(known))),
    )


def _with_gaps(data: bytes, first: pa.Table) -> pa.Table:
    """Parses JSON objects again, for the nulls that lists lack.

    pyarrow 10 drops the nulls of a list before it knows the type of the values. Lists
    that have nulls only are parsed as lists of text.

    Args:
      data: The lines.
      first: The table with such lists.
    """
    pairs = zip(first.schema, first.columns, strict=True)
    known = [x if _is_valid(column) else _with_type(x) for x, column in pairs]
    table = _parsed(data, known)
    for index, field in enumerate(first.schema):
        if field.type == pa.list_(pa.null()) != known[index].type:
            (lists,) = table.column(index).chunks
            values = pa.nulls(len(lists.values))
            buffers = lists.buffers()[:2]
            lists = pa.Array.from_buffers(
                field.type, len(lists), buffers, children=[values]
            )
            table = table.set_column(index, field.name, lists)
    return table


def _with_type(field: pa.Field) -> pa.Field:
    """The field; lists of nulls only as lists of text."""
    return pa.field(field.name, _known(field.type))


def _known(data_type: pa.DataType) -> pa.DataType:
    from strategos.components.data_files.values.arrow_types import is_list

    if pa.types.is_struct(data_type):
        return pa.struct(list(map(_with_type, data_type)))
    if is_list(data_type):
        value = data_type.value_type
        return pa.list_(pa.string() if pa.types.is_null(value) else _known(value))
    return data_type


def _is_valid(data: pa.Table | pa.ChunkedArray) -> bool:
    """Whether each list has as many values as its offsets say."""
    try:
        data.validate()
    except pa.ArrowInvalid:
        return False
    return True


def _without_times(data_type: pa.DataType) -> pa.DataType:
    """The type with text in place of the times that Arrow takes some texts for."""
    from strategos.components.data_files.values.arrow_types import is_list

    if pa.types.is_struct(data_type):
        return pa.struct(
            [pa.field(each.name, _without_times(each.type)) for each in data_type]
        )
    if is_list(data_type):
        return pa.list_(_without_times(data_type.value_type))
    return pa.string() if pa.types.is_temporal(data_type) else data_type


def _is_exact(batch: pa.RecordBatch, lines: Sequence[bytes]) -> bool:
    """Whether no whole number was rounded, since others in its column have a point."""
    import pyarrow.compute as pc

    from strategos.components.data_files.values.arrow_types import is_list

    names = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.flatten() if is_list(column.type) else column
        if pa.types.is_floating(values.type):
            large = pc.greater_equal(pc.abs(values), _EXACT)
            if pc.any(large).as_py():
                names.append(name)
    rows = map(json.loads, lines if names else ())
    return not any(_is_rounded(_at(row, name)) for row in rows for name in names)


def _is_rounded(value: Any) -> bool:
    """Whether a whole number, or one of a list, is changed by a double."""
    if isinstance(value, list):
        return any(map(_is_rounded, value))
    large = type(value) is int and abs(value) > _EXACT
    return large and (abs(value) >= 2**1023 or int(float(value)) != value)


def _at(row: Any, name: str) -> Any:
    """The value of a column by dotted name; None where the row lacks it."""
    if not isinstance(row, dict):
        return None
    if name in row:
        return row[name]
    ends = (place for place, sign in enumerate(name) if sign == ".")
    values = (_at(row.get(name[:end]), name[end + 1 :]) for end in ends)
    return next((each for each in values if each is not None), None)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key `{twice}` occurs twice")
    return row


def _odd(row: dict[str, Any]) -> str:
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if any(type(each) is int and not -(2**63) <= each < 2**63 for each in values):
            return f"`{name}` has a whole number beyond int64: write it as text"
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        return f"has half a character, `\\u{half:04x}`, which is no Unicode text"
    return "has a number beyond double, a list of several types, or a key twice"
