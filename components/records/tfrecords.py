"""The TFRecord format: framing records, and reading files from any place by Arrow.

TensorFlow reads local files (`read.py`); it cannot open every object store.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator, Sequence

import google_crc32c
import numpy as np
import pyarrow as pa

from strategos.components.errors import UserError
from strategos.components.files import object_stores, storage
from strategos.components.records import encode
from strategos.components.records.counts import REMEDY

HEADER_BYTES = 12
"""Bytes before a record: its length, and the checksum of the length."""

_FOOTER_BYTES = 4  # the checksum of the record
_LENGTH = struct.Struct("<Q")
_NO_GZIP = re.compile("zlib inflate failed|Truncated compressed stream")


def frame(records: pa.BinaryArray) -> memoryview:
    """Frames records: length, its checksum, the record, its checksum.

    Args:
      records: binary[rows].
    """
    each = records.to_numpy(zero_copy_only=False)  # of bytes; faster than a list
    footers = _checksums(each)
    bounds = np.arange(0, 4 * len(footers) + 1, 4, dtype=np.int32)
    footers = pa.Array.from_buffers(
        pa.binary(), len(footers), [None, pa.py_buffer(bounds), pa.py_buffer(footers)]
    )
    frames = encode.join(encode.headers(_header, records), records, footers)
    _, _, data = frames.buffers()
    return memoryview(data)


def read(file: str) -> Iterator[list[bytes]]:
    """Yields the records of a file in order, those of a few MiB at a time.

    Args:
      file: A path or URL; a name that ends in `.gz` means GZIP.

    Raises:
      UserError: The file is damaged, or the object store does not answer.
    """
    rest, position = b"", 0
    with (
        object_stores.problems_of(file, "run.root", "read"),
        storage.open_stream(file, gzip=file.endswith(".gz"), patient=True) as source,
    ):
        while data := _next(source, file, position):
            content = rest + data
            records, size = _split(content, file, position)
            yield records
            rest, position = content[size:], position + size
    if rest:
        raise _damaged(file, position)


def _next(source: pa.NativeFile, file: str, position: int) -> bytes:
    try:
        return source.read(storage.CHUNK)
    except OSError as error:  # Arrow's errors have a text only
        if _NO_GZIP.search(str(error)) is None:
            raise
        raise _damaged(file, position) from error


def _split(content: bytes, file: str, position: int) -> tuple[list[bytes], int]:
    """The whole records at the start of `content`, and the size of their frames."""
    begin, records, footers = 0, [], []
    while len(content) - begin >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(content, begin)
        first = begin + HEADER_BYTES
        if content[begin:first] != _header(length):
            raise _damaged(file, position + begin)
        end = first + length
        if end + _FOOTER_BYTES > len(content):
            break
        records.append(content[first:end])
        begin = end + _FOOTER_BYTES
        footers.append(content[end:begin])
    if (np.frombuffer(b"".join(footers), "<u4") != _checksums(records)).any():
        raise _damaged(file, position)
    return records, begin


def _damaged(file: str, position: int) -> UserError:
    return UserError(
        f"{file} is damaged: the records from byte {position:,} on are not those that "
        "were written",
        remedy=REMEDY,
    )


@functools.lru_cache(maxsize=4096)
def _header(length: int) -> bytes:
    encoded = _LENGTH.pack(length)
    return encoded + _checksums([encoded]).tobytes()


def _checksums(records: Sequence[bytes] | np.ndarray) -> np.ndarray:
    """CRC-32C of each record, uint32, masked: rotated, then added to, modulo 2**32."""
    crc = np.fromiter(map(google_crc32c.value, records), np.uint32, len(records))
    return (((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)).astype("<u4")
