"""Arrow files of columns: where they are, and reading them; pyarrow alone.

They are in a folder of their own, so TFX's readers do not take them for examples.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

SUFFIX = ".arrow"


def folder(split: str) -> str:
    """Name of the folder with the columns of a split, in an Examples artifact.

    Args:
      split: Name of the split.
    """
    return f"Columns-{split}"


def batches(file: Any) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a file of columns, and closes it.

    Args:
      file: Opened to read bytes, by TFX or TensorFlow.
    """
    with File(file) as source, pa.ipc.open_stream(source) as stream:
        yield from stream


def messages(file: Any) -> Iterator[tuple[int, pa.Schema, pa.ipc.Message]]:
    """Yields the batches of a file of columns as they are stored, and closes it.

    Args:
      file: Opened to read bytes, by TFX or TensorFlow.

    Yields:
      The position of the batch in the file in bytes, its schema, and the batch.
    """
    with File(file) as source:
        reader = pa.ipc.MessageReader.open_stream(source)
        schema = _schema(reader.read_next_message())
        position = source.position
        for message in reader:
            yield position, schema, message
            position = source.position


def message_at(file: Any, position: int) -> tuple[pa.Schema, pa.ipc.Message]:
    """The schema of a file of columns, and a batch as it is stored; closes the file.

    Args:
      file: Opened to read bytes, by TFX or TensorFlow.
      position: From `messages`.
    """
    with File(file) as source:
        reader = pa.ipc.MessageReader.open_stream(source)  # reads nothing in advance
        schema = _schema(reader.read_next_message())
        file.seek(position)
        return schema, reader.read_next_message()


def _schema(message: pa.ipc.Message) -> pa.Schema:
    return pa.ipc.read_schema(message.serialize())


class File(io.RawIOBase):
    """A file of any file system that TFX or TensorFlow knows, as Arrow needs it.

    Args:
      file: Opened to read or to write bytes.

    Attributes:
      position: Number of bytes read.
    """

    def __init__(self, file: Any):
        self._file = file
        self.position = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        """See `io.RawIOBase`."""
        self._file.write(bytes(data))
        return len(data)

    def close(self) -> None:
        """See `io.RawIOBase`."""
        if not self.closed:
            self._file.close()
        super().close()
