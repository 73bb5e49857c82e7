"""Where rows begin in a CSV file that is read from the middle.

A line break ends a row unless it stands in quotes, and whether it does depends on every
quote before it. So each part of the file is scanned for both cases: that it begins
within quotes, and that it does not. `cut` then goes through the parts in order, and
knows for each which case holds. As in Arrow's parser, a quote opens a quoted field only
where the field begins; elsewhere in an unquoted field it is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from strategos.components.data_files.sources.reading import CsvFormat
from strategos.components.data_files.sources.source import Part
from strategos.components.files import storage
from strategos.components.slow_imports import np

_LF, _CR = b"\n\r"
_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 16 << 20
_CHUNK = 4096
_SEARCHED = 1 << 16  # bytes that are searched for line breaks at a time


class Scan(NamedTuple):
    """Result of the scan of a part, by whether the part begins within quotes.

    Attributes:
      ends_quoted: Whether the part ends within quotes, if it begins (outside, within).
      first_row: Offset in the file of the first row that begins in the part, likewise.
      last_row: Offset of the last such row, likewise.
    """

    ends_quoted: tuple[bool, bool]
    first_row: tuple[int | None, int | None]
    last_row: tuple[int | None, int | None]


def starts(path: str, size: int, form: CsvFormat) -> list[int]:
    """Offsets that cut a file into parts of about `size` bytes; none is behind a quote.

    Args:
      path: An uncompressed file.
      size: Bytes; a remainder below this goes to the last part.
      form: How the file is written, in an encoding that `has_ascii_bytes`.
    """
    quote = form.quote.encode("ascii")
    starts_of_rows = [0]
    with storage.open_binary(path) as file:
        # On Cloud Storage, to seek the end of an object is an error.
        (end,) = (each.size for each in storage.statuses([path]))
        for start in range(size, end - size + 1, size):
            file.seek(start - 1)
            while quote and file.read(1) == quote:
                start += 1
            if starts_of_rows[-1] < start < end:
                starts_of_rows.append(start)
    return starts_of_rows


def scan(path: str, part: Part, form: CsvFormat) -> Scan:
    """Scans a part of a file.

    Args:
      path: An uncompressed file.
      part: Begins at one of `starts` and ends at the next.
      form: How the file is written.
    """
    before = min(part.start, 1)  # one more byte on either side
    with storage.open_binary(path) as file:
        file.seek(part.start - before)
        length = -1 if part.stop is None else part.stop + 1 - part.start + before
        data = np.frombuffer(file.read(length), np.uint8)
    stop = len(data) if part.stop is None else before + part.stop - part.start
    quote = ord(form.quote) if form.quote else -1
    quotes = np.flatnonzero(data[:stop] == quote)
    may_open = _may_open(data, quotes, ord(form.delimiter), at_start=not part.start)
    rows_of_states = []
    for quoted, toggles in enumerate(_toggles(quotes, may_open)):
        # Behind the last byte begins the next part.
        first, last = _row_ends(data, stop - 1, toggles, bool(quoted))
        offset = part.start - before + 1
        rows = (end if end is None else end + offset for end in (first, last))
        rows_of_states.append((bool((len(toggles) + quoted) % 2), *rows))
    return Scan(*zip(*rows_of_states, strict=True))


def cut(scans: Sequence[Scan]) -> list[Part]:
    """The parts of a file, cut where rows begin.

    Args:
      scans: Scans of all parts of the file, in order.
    """
    bounds, quoted = [0], False
    for number, result in enumerate(scans):
        row = result.first_row[quoted]
        if number and row is not None:
            bounds.append(row)
        quoted = result.ends_quoted[quoted]
    return list(map(Part, bounds, [*bounds[1:], None]))


def open_row(scans: Sequence[Scan]) -> int | None:
    """Offset of the row with an unclosed quote; None if all quotes are closed.

    Args:
      scans: Scans of all parts of a file, in order.
    """
    quoted, row = False, 0
    for result in scans:
        begun = result.last_row[quoted]
        row = row if begun is None else begun
        quoted = result.ends_quoted[quoted]
    return row if quoted else None


def count_lines(path: str, stop: int) -> int:
    """The number of lines that end before the byte `stop` of a file."""
    lines, carried = 0, b""
    with storage.open_binary(path) as file:
        while stop:
            data = carried + file.read(min(stop, _BLOCK_BYTES))
            stop -= len(data) - len(carried)
            carried = b"\r" if stop and data.endswith(b"\r") else b""
            returns = data.count(b"\r") - data.count(b"\r\n") - len(carried)
            lines += data.count(b"\n") + returns
    return lines


def _row_ends(
    data: np.ndarray, stop: int, toggles: np.ndarray, quoted: bool
) -> tuple[int | None, int | None]:
    """The first and the last line break before the byte `stop` that end a row.

    Mostly they are in the first and the last block: the others are not searched.
    """
    blocks = range(0, stop, _SEARCHED)
    firsts = (_ends_in(data, start, stop, toggles, quoted) for start in blocks)
    first = next(filter(len, firsts), None)
    if first is None:
        return None, None
    lasts = (_ends_in(data, start, stop, toggles, quoted) for start in reversed(blocks))
    return int(first[0]), int(next(filter(len, lasts))[-1])


def _ends_in(
    data: np.ndarray, start: int, stop: int, toggles: np.ndarray, quoted: bool
) -> np.ndarray:
    """Indices of the line breaks of a block that stand outside of quotes."""
    stop = min(start + _SEARCHED, stop)
    breaks = start + _line_ends(data[start : stop + 1])  # CR, LF: one break, at LF
    breaks = breaks[breaks < stop]
    return breaks[(np.searchsorted(toggles, breaks) + quoted) % 2 == 0]


def _line_ends(data: np.ndarray) -> np.ndarray:
    """Indices of all line feeds, and carriage returns that none follows."""
    feeds = data == _LF
    returns = data == _CR
    returns[:-1] &= ~feeds[1:]
    return np.flatnonzero(feeds | returns)


def _may_open(
    data: np.ndarray, quotes: np.ndarray, delimiter: int, at_start: bool
) -> np.ndarray:
    """Whether each quote stands where a field begins."""
    previous = data[np.maximum(quotes - 1, 0)]
    opens = (previous == delimiter) | (previous == _LF) | (previous == _CR)
    if at_start and len(quotes):
        first = len(_BOM) if data[:3].tobytes() == _BOM else 0
        opens[0] |= quotes[0] == first
    return opens


def _toggles(quotes: np.ndarray, may_open: np.ndarray) -> Iterator[np.ndarray]:
    """The quotes that open or close a quoted field; other quotes are text.

    A doubled quote in a quoted field closes and reopens it, with the same result.

    Yields:
      Them if the part begins outside of quotes, then if it begins within.
    """
    text = ~(may_open | (np.diff(quotes, prepend=-2) == 1))
    last_text = [_last(text, parity) for parity in (0, 1)]
    for quoted in (False, True):
        # If no quote from here on is text, every second one must fit.
        if last_text[quoted] < 0:
            yield quotes
        else:
            yield _toggles_one_by_one(quotes, may_open, last_text, quoted)


def _toggles_one_by_one(
    quotes: np.ndarray, may_open: np.ndarray, last_text: Sequence[int], quoted: bool
) -> np.ndarray:
    toggles: list[int] = []
    last = -2
    for index, (quote, may) in enumerate(_pairs(quotes, may_open)):
        if quoted or may or last == quote - 1:
            quoted, last = not quoted, quote
            toggles.append(quote)
            if last_text[(index + 1 + quoted) % 2] <= index:
                return np.append(np.array(toggles, np.int64), quotes[index + 1 :])
    return np.array(toggles, np.int64)


def _pairs(quotes: np.ndarray, may_open: np.ndarray) -> Iterator[tuple[int, bool]]:
    """Each quote with its flag, converted by chunk: mostly one chunk is enough."""
    for start in range(0, len(quotes), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        yield from zip(quotes[chunk].tolist(), may_open[chunk].tolist(), strict=True)


def _last(flags: np.ndarray, parity: int) -> int:
    """The last even (parity 0) or odd index of a true flag, or -1."""
    places = np.flatnonzero(flags[parity::2])
    return 2 * int(places[-1]) + parity if len(places) else -1
