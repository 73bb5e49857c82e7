"""Writes GZIP TFRecord files in shards of about equal size."""

from __future__ import annotations

import os
import struct
import zlib

import google_crc32c
import numpy as np
import pyarrow as pa
from tfx.dsl.io import fileio

from strategos.components.records import encode

_SHARD_BYTES = 32 << 20
_GZIP = 16 + zlib.MAX_WBITS


class ShardWriter:
    """Writes records to `data_tfrecord-00000-of-0000N.gz` files of one folder.

    A shard ends at 32 MiB before compression. `close` gives the files these names.

    Attributes:
      rows: Number of records written so far.
    """

    def __init__(self, folder: str):
        """Creates the folder if it is missing."""
        self._folder = folder
        self._file = None
        self._gzip = zlib.compressobj()
        self._shards = 0
        self._bytes = 0
        self.rows = 0
        fileio.makedirs(folder)

    def write(self, records: pa.BinaryArray) -> None:
        """Appends records.

        Args:
          records: binary[rows], written in this order; may be empty.
        """
        if not len(records):
            return
        if self._file is None:
            self._begin()
        frames = _frame(records)
        self._file.write(self._gzip.compress(frames))
        self._bytes += len(frames)
        self.rows += len(records)
        if self._bytes >= _SHARD_BYTES:
            self._end()

    def close(self) -> None:
        """Ends the last shard and renames all shards to their final names."""
        self._end()
        for shard in range(self._shards):
            final = f"data_tfrecord-{shard:05}-of-{self._shards:05}.gz"
            fileio.rename(self._part(shard), os.path.join(self._folder, final))

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


def _frame(records: pa.BinaryArray) -> memoryview:
    """Frames records as TFRecord: length, its checksum, the record, its checksum."""
    checksums = [google_crc32c.value(record) for record in records.to_pylist()]
    masked = _mask(np.array(checksums, np.uint32)).astype("<u4")
    bounds = np.arange(0, 4 * len(masked) + 1, 4, np.int32)
    footers = pa.Array.from_buffers(
        pa.binary(), len(masked), [None, pa.py_buffer(bounds), pa.py_buffer(masked)]
    )
    frames = encode.join(encode.prefix(records, _length_and_checksum), footers)
    _, _, data = frames.buffers()
    return memoryview(data)


def _length_and_checksum(length: int) -> bytes:
    encoded = struct.pack("<Q", length)
    checksum = _mask(np.array([google_crc32c.value(encoded)], np.uint32))
    return encoded + checksum.astype("<u4").tobytes()


def _mask(checksums: np.ndarray) -> np.ndarray:
    """Masks CRC-32C as TFRecord requires: rotate, then add, modulo 2**32."""
    return ((checksums >> 15) | (checksums << 17)) + np.uint32(0xA282EAD8)
