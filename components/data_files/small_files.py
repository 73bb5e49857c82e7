"""Small files that are parsed together: a call of Arrow costs as much as 500 rows."""

from __future__ import annotations

import bisect
import copy
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from strategos.components.data_files import formats
from strategos.components.data_files.sources.source import (
    MAX_ROWS,
    WHOLE,
    Part,
    Source,
)
from strategos.components.data_files.sources.undeclared import TextSource
from strategos.components.errors import UserError
from strategos.components.files import object_stores, storage
from strategos.components.files.filesystems import is_remote

if TYPE_CHECKING:
    import pyarrow as pa

_PARSED_BYTES = 4 << 20
_REQUESTS = 64  # objects of a store that are read at a time


class SmallFiles(TextSource):
    """Whole files that are `alike`, as one source: rows after rows.

    Files that their format does not parse together, e.g. because a row has too few
    fields, are read one by one, so that messages name the file.

    Args:
      first: The first file.
      paths: All files in order, the first one included.
    """

    def __init__(self, first: Source, paths: Sequence[str]):
        self.path, self.names = first.path, first.names
        self.ignores_extra = first.ignores_extra
        self._first, self._paths = first, tuple(paths)
        self._rows: dict[int, int] = {}  # by file, as far as they are counted

    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        for contents in self._groups():
            parsed = self._first.parsed([*contents.values()])
            if parsed is None:
                for number in contents:
                    yield from self._file(number).batches()
                continue
            table, counts = parsed
            self._rows |= zip(contents, counts, strict=True)
            yield from table.to_batches(max_chunksize=MAX_ROWS)

    def place(self, part: Part, row: int) -> str:
        """See `Source`."""
        (place,) = self.places(part, [row])
        return place

    def places(self, part: Part, rows: Sequence[int]) -> list[str]:
        """See `Source`; goes through the files once."""
        places, start = list[str](), 0
        for number in range(len(self._paths)):
            if len(places) == len(rows):
                break
            end = start + self._count(number)
            own = rows[len(places) : bisect.bisect_left(rows, end)]
            if own:
                inside = [row - start for row in own]
                places += self._file(number).places(WHOLE, inside)
            start = end
        return places

    def stretches(self, row: int, rows: int) -> Iterator[tuple[str, int, int]]:
        """See `Source`."""
        start, stop = 0, row + rows
        for number, path in enumerate(self._paths):
            if start >= stop:
                return
            end = start + self._count(number)
            if row < end:
                yield path, row - start, min(end, stop) - row
                row = end
            start = end

    def _groups(self) -> Iterator[dict[int, bytes]]:
        """Contents of consecutive files by their numbers, some megabytes at a time."""
        files, size = dict[int, bytes](), 0
        for number, content in enumerate(self._contents()):
            files[number] = content
            size += len(content)
            if size >= _PARSED_BYTES:
                yield files
                files, size = {}, 0
        if files:
            yield files

    def _contents(self) -> Iterator[bytes]:
        paths = iter(self._paths)
        if not is_remote(self.path):
            yield from map(_content, paths)
        while some := [*islice(paths, _REQUESTS)]:
            yield from object_stores.each(_content, some)

    def _count(self, number: int) -> int:
        if number not in self._rows:
            self._rows[number] = self._file(number).rows_of(WHOLE)
        return self._rows[number]

    def _file(self, number: int) -> Source:
        file = copy.copy(self._first)
        file.path = self._paths[number]
        return file


def _content(path: str) -> bytes:
    try:
        return storage.read(path)
    except OSError as error:
        raise UserError(formats.unreadable(path, error)) from error
