"""Writes GZIP TFRecord files in shards of about equal size.

A worker may be killed, or two workers may work on the same shard at once. So each
attempt writes files with unique names, in a folder that no reader looks at, and the
driver moves the files of one complete attempt of each shard to their place.
"""

from __future__ import annotations

import collections
import contextlib
import os
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
from isal import isal_zlib

from strategos.components.files import filesystems, object_stores, storage
from strategos.components.records import tfrecords

_FILE_BYTES = 32 << 20
_UNPUBLISHED = ".unpublished"

_GZIP = 16 + isal_zlib.MAX_WBITS


class Written(NamedTuple):
    """Files that are written, but not published yet.

    Attributes:
      names: Names in the folder `unpublished`, a line each, in the order of the
        records. One text, because those of a million shards are in memory at once.
      rows: Number of records in them.
    """

    names: str = ""
    rows: int = 0

    @classmethod
    def of(cls, files: Iterable[str], rows: int) -> Written:
        """Files by their names, with the number of records in them."""
        return cls("".join(f"{file}\n" for file in files), rows)

    @property
    def files(self) -> list[str]:
        """The names."""
        return self.names.splitlines()

    def merge(self, later: Written) -> Written:
        """Adds the files of later records."""
        return Written(self.names + later.names, self.rows + later.rows)


def unpublished(artifact: str) -> str:
    """The folder for files of an artifact that are not published yet.

    In an object store it is beside the artifact: Arrow, when it removes an object,
    writes an empty one for the folder above. The launcher of Kubeflow Pipelines would
    take that for a file, and could not copy the artifact.

    Args:
      artifact: URI of the artifact.
    """
    if not filesystems.is_remote(artifact):
        return os.path.join(artifact, _UNPUBLISHED)
    above, _, name = artifact.rstrip("/").rpartition("/")
    return f"{above}/{_UNPUBLISHED}-{name}"


def attempt(shard: int) -> str:
    """Prefix of the names of one attempt's files, e.g. "000003-" and a UUID in hex."""
    return f"{shard:06}-{uuid.uuid4().hex}"


def publish(
    artifact: str,
    folder: str,
    written: Written,
    name: str = "data_tfrecord",
    suffix: str = ".gz",
) -> None:
    """Moves files to `FOLDER/NAME-00000-of-0000NSUFFIX`.

    Args:
      artifact: URI of the artifact.
      folder: Folder in the artifact; created if missing.
      written: All files to move, each from an attempt that is complete.
      name: Begins the final names.
      suffix: Ends the final names.
    """
    files, target = written.files, os.path.join(artifact, folder)
    source = unpublished(artifact)
    if not filesystems.is_remote(artifact):
        os.makedirs(target, exist_ok=True)

    def move(numbered: tuple[int, str]) -> None:
        number, file = numbered
        final = f"{target}/{name}-{number:05}-of-{len(files):05}{suffix}"
        storage.move(f"{source}/{file}", final)

    # In an object store, each takes a few requests, one after another.
    each = object_stores.each if filesystems.is_remote(artifact) else map
    collections.deque(each(move, enumerate(files)), maxlen=0)


def discard_unpublished(artifact: str) -> None:
    """Removes the files of attempts that failed or were repeated.

    Args:
      artifact: URI of the artifact.
    """
    storage.remove(unpublished(artifact))


class ShardWriter:
    """Writes the records of one shard of the data to one or more files.

    A file is full at 32 MiB before compression. The files stay in `unpublished` until
    `publish`.

    Args:
      artifact: URI of the artifact.
      shard: Number of the shard.
    """

    def __init__(self, artifact: str, shard: int = 0):
        self._folder = unpublished(artifact)
        self._name = attempt(shard)
        self._files: list[str] = []
        self._opened = contextlib.ExitStack()
        self._file: Any = None
        self._gzip = Gzip()
        self._bytes = 0
        self._rows = 0

    def write(self, records: pa.ChunkedArray) -> None:
        """Appends records.

        Args:
          records: binary[rows], written in this order; may be empty.
        """
        if not len(records):
            return
        if self._file is None:
            self._begin()
        for part in records.chunks:
            frames = tfrecords.frame(part)
            self._file.write(self._gzip.compress(frames))
            self._bytes += len(frames)
        self._rows += len(records)
        if self._bytes >= _FILE_BYTES:
            self._end()

    def close(self) -> Written:
        """Ends the last file and returns the files' names and number of rows."""
        self._end()
        return Written.of(self._files, self._rows)

    def _begin(self) -> None:
        self._files.append(f"{self._name}-{len(self._files):05}")
        path = os.path.join(self._folder, self._files[-1])
        self._file = self._opened.enter_context(storage.create(path))
        self._gzip = Gzip()
        self._bytes = 0

    def _end(self) -> None:
        if self._file is None:
            return
        self._file.write(self._gzip.flush())
        self._opened.close()
        self._file = None


class Gzip:
    """Compresses frames of TFRecords; equal frames give equal bytes.

    ISA-L alone would give other bytes in one of about ten thousand files: its code for
    the first bytes of a stream uses a register before it is set, which holds an address
    (`.write_first_byte` in igzip_icf_body_h1_gr_bt.asm). Other code compresses an input
    of a few bytes, so the first header is one.
    """

    def __init__(self) -> None:
        self._stream = isal_zlib.compressobj(level=1, wbits=_GZIP)
        self._is_empty = True

    def compress(self, frames: memoryview) -> bytes:
        """Compresses one or more whole frames; later calls may return their rest."""
        if not self._is_empty:
            return self._stream.compress(frames)
        self._is_empty = False
        first = self._stream.compress(frames[: tfrecords.HEADER_BYTES])
        first += self._stream.flush(isal_zlib.Z_SYNC_FLUSH)
        return first + self._stream.compress(frames[tfrecords.HEADER_BYTES :])

    def flush(self) -> bytes:
        """Ends the stream and returns the remaining bytes."""
        return self._stream.flush()
