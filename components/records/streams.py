"""Arrow files of columns: where they are, and reading them; pyarrow alone.

They are in a folder of their own, so TFX's readers do not take them for examples. After
the Arrow stream, where its readers stop, a file has the CRC-32C of each batch, as
TFRecord files have of each record: damaged bytes are an error, never other numbers.
"""

from __future__ import annotations

import bisect
import contextlib
import io
import struct
from collections.abc import Iterator
from typing import Any

import google_crc32c
import pyarrow as pa

from strategos.components.errors import UserError
from strategos.components.files import object_stores, storage
from strategos.components.records.counts import REMEDY

SUFFIX = ".arrow"

_SUM, _END = struct.Struct("<QI"), struct.Struct("<I8s")
_MAGIC = b"CRC-32C\n"


def folder(split: str) -> str:
    """Name of the folder with the columns of a split, in an Examples artifact.

    Args:
      split: Name of the split.
    """
    return f"Columns-{split}"


def batches(file: str) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a file of columns.

    Args:
      file: A path or URL.
    """
    with _opened(file) as source, pa.ipc.open_stream(source) as stream:
        yield from stream


def messages(file: str) -> Iterator[tuple[int, pa.Schema, pa.ipc.Message]]:
    """Yields the batches of a file of columns as they are stored.

    Args:
      file: A path or URL.

    Yields:
      The position of the batch in the file in bytes, its schema, and the batch.
    """
    with _opened(file) as source:
        reader = pa.ipc.MessageReader.open_stream(source)
        schema = _schema(reader.read_next_message())
        position = source.position
        for message in reader:
            yield position, schema, message
            position = source.position


def message_at(file: str, position: int) -> tuple[pa.Schema, pa.ipc.Message]:
    """The schema of a file of columns, and a batch as it is stored.

    Args:
      file: A path or URL.
      position: From `messages`.
    """
    with _opened(file) as source:
        reader = pa.ipc.MessageReader.open_stream(source)  # reads nothing in advance
        schema = _schema(reader.read_next_message())
        source.go_to(position)
        return schema, reader.read_next_message()


@contextlib.contextmanager
def _opened(file: str) -> Iterator[File]:
    with object_stores.problems_of(file, "run.root", "read"):
        # Arrow cannot go to the end of an object on Cloud Storage to learn its size.
        (status,) = storage.statuses([file])
        opened = storage.open_binary(file, patient=True)
        with File(opened, name=file).expecting_sums(status.size) as source:
            yield source


def _schema(message: pa.ipc.Message) -> pa.Schema:
    return pa.ipc.read_schema(message.serialize())


class File(io.RawIOBase):
    """A file of columns as Arrow needs it, on this machine or in an object store.

    Args:
      file: Opened to read or to write bytes.
      schema: Schema of the batches to write; it has its own checksum.
      name: Path or URL, for messages.

    Attributes:
      position: Number of bytes read or written.
    """

    def __init__(self, file: Any, schema: pa.Schema | None = None, name: str = ""):
        self._file, self._name = file, name
        self._schema_end = schema.serialize().size if schema else None
        self.position = self._crc = 0
        self._sums: dict[int, int] = {}
        self._ends: list[int] = []
        self._ready = memoryview(b"")

    def expecting_sums(self, size: int) -> File:
        """Compares bytes read with the checksums at the end of the file, if any.

        Args:
          size: Bytes of the file.
        """
        self._file.seek(max(0, size - _END.size))
        end = self._file.read(_END.size)
        if end[-len(_MAGIC) :] == _MAGIC:
            count, _ = _END.unpack(end)
            self._file.seek(max(0, size - _END.size - count * _SUM.size))
            self._sums = dict(_SUM.iter_unpack(self._file.read(count * _SUM.size)))
            self._ends = sorted(self._sums)
        self._file.seek(0)
        return self

    def go_to(self, position: int) -> None:
        """Goes on reading at a position where a batch begins."""
        if position != self.position:
            self._file.seek(position)
            self.position, self._ready = position, memoryview(b"")

    def end_batch(self) -> None:
        """Ends the bytes of a batch that was written."""
        self._sums[self.position], self._crc = self._crc, 0

    def write_sums(self) -> None:
        """Writes the checksums of all batches, after the Arrow stream has ended."""
        for position, crc in self._sums.items():
            self._file.write(_SUM.pack(position, crc))
        self._file.write(_END.pack(len(self._sums), _MAGIC))

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`.

        Raises:
          UserError: The batch has another checksum than when it was written.
        """
        if self._ends and not self._ready:
            self._ready = memoryview(self._next_batch())
        size = len(buffer)
        data = self._ready[:size] if self._ends else self._file.read(size)
        self._ready = self._ready[size:]
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def _next_batch(self) -> bytes:
        """The bytes up to the end of a batch, before Arrow takes any of them."""
        following = bisect.bisect_right(self._ends, self.position)
        if following == len(self._ends):
            return b""
        end = self._ends[following]
        content = self._file.read(end - self.position)
        if google_crc32c.value(content) != self._sums[end]:
            raise UserError(
                f"{self._name} is damaged: bytes {self.position:,} to {end:,} are not "
                "those that were written",
                remedy=REMEDY,
            )
        return content

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        content = bytes(data)
        self._file.write(content)
        self.position += len(content)
        self._crc = google_crc32c.extend(self._crc, content)
        if self.position == self._schema_end:
            self.end_batch()
        return len(content)

    def close(self) -> None:
        """See `io.RawIOBase`."""
        if not self.closed:
            self._file.close()
        super().close()
