"""Decoded rows in a temporary file, for splits that need not fit in memory.

Only features of fixed size are stored: numbers, as one matrix for each type. A pass
takes blocks of bounded size from anywhere in the file, which is mapped a window at a
time: a run's memory does not grow with its rows, although the system caches the file.

Up to `CHUNKS` rows, a pass has the same order as in memory. More rows are taken in
chunks of neighbours, permuted, then permuted again in their block.

The file is deleted when its process ends, however it ends.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from strategos.components.trainer.data.parts import no_autograph

CHUNKS = 1 << 21
"""Most parts that are permuted in memory."""

_BLOCK_BYTES = 16 << 20
_BLOCKS_IN_MEMORY = 4  # in use, ready, being read, and its copy as a tensor
_WINDOW_BYTES = 16 << 20
_ALIGNMENT = 64  # bytes; of TensorFlow's tensors
_LARGE_FILES = "/var/tmp"  # /tmp may be memory

Matrices = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Stored:
    """The rows of a split.

    Attributes:
      files: A mapped, deleted file for each type, with its matrix [rows, width].
      widths: Width of the matrix of each type.
      rows: Number of rows.
      limit: Bytes that a pass may keep in memory.
    """

    files: Mapping[str, mmap.mmap]
    widths: Mapping[str, int]
    rows: int
    limit: int

    @classmethod
    def write(
        cls, blocks: Iterable[Mapping[str, tf.Tensor]], limit: int
    ) -> Stored | None:
        """Stores rows; returns None if the disk has no space for them.

        Args:
          blocks: Matrices [rows, width] by the names of their types, as tensors of
            this process; at least one row.
          limit: Bytes that a pass may keep in memory.
        """
        rows, widths, folder = 0, {}, folder_for_rows()
        files = {}
        try:
            for block in blocks:
                for kind, matrix in block.items():
                    if kind not in files:
                        files[kind] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
                        widths[kind] = matrix.shape[1]
                    files[kind].write(np.ascontiguousarray(matrix).data)
                rows += len(matrix)
            for file in files.values():
                file.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return None
        mapped = {
            kind: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for kind, file in files.items()
        }
        return cls(mapped, widths, rows, limit)

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self.rows * self._row_bytes

    @property
    def chunk_rows(self) -> int:
        """Neighbours that are taken together."""
        return -(-self.rows // CHUNKS)

    def whole(self) -> Matrices:
        """All rows, read-only, where the files are mapped; nothing is copied."""
        return {
            kind: np.frombuffer(self.files[kind], kind).reshape(self.rows, width)
            for kind, width in self.widths.items()
        }

    def rows_at(self, places: np.ndarray) -> dict[str, tf.Tensor]:
        """Some rows, by type.

        Args:
          places: Row numbers, int64 [n].
        """
        return {k: tf.constant(v) for k, v in self._gathered(places).items()}

    def block_batches(self, batch_size: int) -> int:
        """Batches of a block: as many as the limit allows, at least one.

        Args:
          batch_size: Rows of a global batch.
        """
        size = min(self.limit // _BLOCKS_IN_MEMORY, _BLOCK_BYTES)
        return max(1, size // self._row_bytes // batch_size)

    def shuffled(
        self, key: tf.Tensor, batch_size: int, first: tf.Tensor
    ) -> tf.data.Dataset:
        """One pass in blocks: matrices by type, in the pass's order; first batch int64.

        Args:
          key: int64 [2]; determines the order of the pass.
          batch_size: Rows of a global batch; each block but the last has a multiple.
          first: int64. The batch to start at.
        """
        batches = self.block_batches(batch_size)
        size = batches * batch_size
        shuffle = tf.random.experimental.stateless_shuffle
        parts = tf.range(-(-self.rows // self.chunk_rows))  # at most `CHUNKS`
        parts = shuffle(parts, key)

        @no_autograph
        def block(number: tf.Tensor) -> tuple:
            length = tf.minimum(self.rows - number * size, size)
            order = tf.range(length)
            if self.chunk_rows > 1:
                inner = tf.random.experimental.stateless_fold_in(key, number + 1)
                order = shuffle(order, inner)
            own = tf.where(number == first // batches, first % batches, 0)
            return self._read(number * size + order, parts), own

        return self._blocks(first // batches, size).map(block)

    def ordered(self, batch_size: int) -> tf.data.Dataset:
        """One pass in the order of the rows, in blocks as of `shuffled`.

        Args:
          batch_size: Rows of a global batch.
        """
        size = self.block_batches(batch_size) * batch_size

        @no_autograph
        def block(number: tf.Tensor) -> tuple:
            length = tf.minimum(self.rows - number * size, size)
            rows = number * size + tf.range(length)
            return self._read(rows, tf.zeros(0, tf.int32)), tf.constant(0, tf.int64)

        return self._blocks(0, size).map(block)

    @property
    def _row_bytes(self) -> int:
        return sum(np.dtype(kind).itemsize * n for kind, n in self.widths.items())

    def _blocks(self, first: int | tf.Tensor, size: int) -> tf.data.Dataset:
        return tf.data.Dataset.range(first, -(-self.rows // size))

    def _read(self, places: tf.Tensor, parts: tf.Tensor) -> dict[str, tf.Tensor]:
        """The rows at some places of a pass, by type.

        Args:
          places: int64 [n].
          parts: Chunks in the order of the pass, int32 [n]; none for the rows' own.
        """

        def read(places: np.ndarray, parts: np.ndarray) -> list[np.ndarray]:
            if len(parts):
                places = _rows(parts, places, self.chunk_rows, self.rows)
            matrices = self._gathered(places)
            return [matrices[kind] for kind in self.widths]

        kinds = [tf.as_dtype(kind) for kind in self.widths]
        matrices = tf.numpy_function(read, [places, parts], kinds)
        return {
            kind: tf.ensure_shape(matrix, [None, width])
            for (kind, width), matrix in zip(self.widths.items(), matrices, strict=True)
        }

    def _gathered(self, rows: np.ndarray) -> Matrices:
        """Copies rows, a window of the files at a time.

        Args:
          rows: Row numbers, int64 [n].
        """
        wholes = self.whole()
        longest = max(whole.strides[0] for whole in wholes.values())
        window = max(1, _WINDOW_BYTES // longest)
        windows = rows // window
        # NumPy sorts integers of 16 bits by radix.
        narrow = windows.astype(np.min_scalar_type(self.rows // window))
        sources = np.argsort(narrow, kind="stable")
        places = np.empty_like(sources)
        places[sources] = np.arange(len(rows))
        bounds = np.cumsum([0, *np.bincount(windows)])
        matrices = {}
        for kind, whole in wholes.items():
            buffer = np.empty((len(rows), whole.shape[1]), kind)
            for begin, end in itertools.pairwise(bounds):
                wanted, part = rows[sources[begin:end]], buffer[begin:end]
                np.take(whole, wanted, axis=0, out=part, mode="clip")  # unbuffered
                # The system still caches these pages, but the process gives them back.
                self.files[kind].madvise(mmap.MADV_DONTNEED)
            matrices[kind] = _aligned(buffer.shape, kind)
            np.take(buffer, places, axis=0, out=matrices[kind], mode="clip")
        return matrices


def _aligned(shape: tuple[int, ...], kind: str) -> np.ndarray:
    """An array that TensorFlow takes as a tensor without copying it."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(kind).reshape(shape)


def _rows(parts: np.ndarray, places: np.ndarray, size: int, rows: int) -> np.ndarray:
    """The rows at some places of a pass.

    Args:
      parts: Numbers of chunks in the order of the pass.
      places: Places in the pass, in rows.
      size: Rows of a chunk; the last chunk of the file may have fewer.
      rows: Rows of all chunks.
    """
    missing = len(parts) * size - rows
    if missing:
        last = int(np.argmax(parts == len(parts) - 1))
        places = places + missing * (places >= (last + 1) * size - missing)
    return parts[places // size].astype(np.int64) * size + places % size


def folder_for_rows() -> str:
    """The folder of temporary files with decoded rows."""
    chosen = tempfile.gettempdir()
    if chosen == "/tmp" and os.access(_LARGE_FILES, os.W_OK):
        return _LARGE_FILES
    return chosen
