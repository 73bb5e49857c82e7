"""TFRecord files, gzipped, in shards of like size."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable

import google_crc32c
from tfx.dsl.io import fileio

_SHARD_BYTES = 32 << 20
_GZIP = 16 + zlib.MAX_WBITS


class ShardWriter:
    """Writes records to `data_tfrecord-00000-of-0000N.gz` files of one folder.

    A shard is full at 32 MiB before compression. The names are final after `close`.

    Attributes:
      rows: Records written so far.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._file = None
        self._gzip = zlib.compressobj()
        self._shards = 0
        self._bytes = 0
        self.rows = 0
        fileio.makedirs(folder)

    def write(self, records: Iterable[bytes]) -> None:
        """Appends records, in order."""
        frames = b"".join([part for record in records for part in self._frame(record)])
        if not frames:
            return
        if self._file is None:
            self._begin()
        self._file.write(self._gzip.compress(frames))
        self._bytes += len(frames)
        if self._bytes >= _SHARD_BYTES:
            self._end()

    def close(self) -> None:
        """Ends the last shard and gives all of them their names."""
        self._end()
        for shard in range(self._shards):
            final = f"data_tfrecord-{shard:05}-of-{self._shards:05}.gz"
            fileio.rename(self._part(shard), os.path.join(self._folder, final))

    def _frame(self, record: bytes) -> tuple[bytes, bytes, bytes]:
        self.rows += 1
        length = struct.pack("<Q", len(record))
        return length + _checksum(length), record, _checksum(record)

    def _begin(self) -> None:
        self._file = fileio.open(self._part(self._shards), "wb")
        self._gzip = zlib.compressobj(level=1, wbits=_GZIP)
        self._bytes = 0

    def _end(self) -> None:
        if self._file is None:
            return
        self._file.write(self._gzip.flush())
        self._file.close()
        self._file = None
        self._shards += 1

    def _part(self, shard: int) -> str:
        return os.path.join(self._folder, f".part-{shard:05}")


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as TFRecord wants it."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
