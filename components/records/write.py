"""Writes GZIP TFRecord files in shards of about equal size."""

from __future__ import annotations

import dataclasses
import os
import struct
import uuid
import zlib

import google_crc32c
import numpy as np
import pyarrow as pa
from tfx.dsl.io import fileio

from strategos.components.records import encode

_FILE_BYTES = 32 << 20
PART = ".part-"
"""Begins the names of files that are not published yet."""

_GZIP = 16 + zlib.MAX_WBITS


@dataclasses.dataclass(frozen=True)
class Written:
    """Files that are written, but not published yet.

    Attributes:
      files: Their temporary names, in the order of the records.
      rows: Number of records in them.
    """

    files: tuple[str, ...] = ()
    rows: int = 0

    def __add__(self, later: Written) -> Written:
        return Written(self.files + later.files, self.rows + later.rows)


def publish(
    folder: str, written: Written, name: str = "data_tfrecord", suffix: str = ".gz"
) -> None:
    """Renames files to `NAME-00000-of-0000NSUFFIX`, and removes unused ones.

    Args:
      folder: Folder of the files.
      written: All files to keep; files of attempts that failed are not among them.
      name: Begins the final names.
      suffix: Ends the final names.
    """
    count = len(written.files)
    for number, temporary in enumerate(written.files):
        final = f"{name}-{number:05}-of-{count:05}{suffix}"
        fileio.rename(os.path.join(folder, temporary), os.path.join(folder, final))
    for unused in fileio.glob(os.path.join(folder, f"{PART}*")):
        fileio.remove(unused)


class ShardWriter:
    """Writes the records of one shard of the data to one or more files.

    A file is full at 32 MiB before compression. Names are temporary until `publish`,
    and unique, so two attempts at the same shard do not collide.

    Args:
      folder: Folder for the files; created if missing.
      shard: Number of the shard.
    """

    def __init__(self, folder: str, shard: int = 0):
        self._folder = folder
        self._name = f"{PART}{shard:06}-{uuid.uuid4().hex}"
        self._files: list[str] = []
        self._file = None
        self._gzip = zlib.compressobj()
        self._bytes = 0
        self._rows = 0
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
        self._rows += len(records)
        if self._bytes >= _FILE_BYTES:
            self._end()

    def close(self) -> Written:
        """Ends the last file and returns what was written."""
        self._end()
        return Written(tuple(self._files), self._rows)

    def _begin(self) -> None:
        self._files.append(f"{self._name}-{len(self._files):05}")
        self._file = fileio.open(os.path.join(self._folder, self._files[-1]), "wb")
        self._gzip = zlib.compressobj(level=1, wbits=_GZIP)
        self._bytes = 0

    def _end(self) -> None:
        if self._file is None:
            return
        self._file.write(self._gzip.flush())
        self._file.close()
        self._file = None


def _frame(records: pa.BinaryArray) -> memoryview:
    """Frames records as TFRecord: length, its checksum, the record, its checksum."""
    each = records.to_numpy(zero_copy_only=False)  # of bytes; faster than a list
    checksums = np.fromiter(map(google_crc32c.value, each), np.uint32, len(each))
    masked = _mask(checksums).astype("<u4")
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
