"""Splits of an Examples artifact: their tf.Examples, and the columns beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import TypeAlias

import pyarrow as pa

from strategos.components.files import object_stores
from strategos.components.records import streams
from strategos.components.records.columns import ColumnWriter
from strategos.components.records.write import (
    ShardWriter,
    Written,
    discard_unpublished,
)
from strategos.components.records.write import publish as publish_files

WrittenSplit: TypeAlias = tuple[Written, Written]
"""The written files of a split: tf.Examples, and columns."""


def evaluated(names: Collection[str]) -> str:
    """The split that a training evaluates on: `validation`, or `eval` without one.

    Args:
      names: The splits of an artifact.
    """
    return "validation" if "validation" in names else "eval"


class SplitWriter:
    """Writes rows of one split: as tf.Examples, and as columns.

    Args:
      examples: URI of the artifact.
      shard: Number of the shard.
    """

    def __init__(self, examples: str, shard: int = 0):
        self._records = ShardWriter(examples, shard)
        self._columns = ColumnWriter(examples, shard)
        self._examples = examples

    def write(self, records: pa.ChunkedArray, compact: pa.RecordBatch | None) -> None:
        """Appends rows.

        Args:
          records: binary[rows], serialized tf.Examples.
          compact: The same rows from `columns.compact`; None to write no columns.
        """
        with _problems(self._examples):
            self._records.write(records)
            if compact is not None:
                self._columns.write(compact)

    def close(self) -> WrittenSplit:
        """Ends the files and returns their names and numbers of rows."""
        with _problems(self._examples):
            return self._records.close(), self._columns.close()


def merged(earlier: WrittenSplit, later: WrittenSplit) -> WrittenSplit:
    """The files and rows of a split from two neighbouring shards."""
    return earlier[0].merge(later[0]), earlier[1].merge(later[1])


def publish(examples: str, written: Mapping[str, WrittenSplit]) -> None:
    """Gives the files of all splits their final names.

    Args:
      examples: URI of the artifact.
      written: All that was written, by split.
    """
    with _problems(examples):
        for split, (records, columns) in written.items():
            publish_files(examples, f"Split-{split}", records)
            if columns.names:
                folder = streams.folder(split)
                publish_files(examples, folder, columns, "columns", streams.SUFFIX)
        discard_unpublished(examples)


def _problems(examples: str) -> contextlib.AbstractContextManager[None]:
    return object_stores.problems_of(examples, "run.root", "written")
