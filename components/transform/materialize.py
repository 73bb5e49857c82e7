"""Transforms examples with TFT's graph, thousands at a time, into new examples."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import impl_helper

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.files import exchange
from strategos.components.records import columns, encode, splits
from strategos.components.records.splits import WrittenSplit
from strategos.components.records.write import Written
from strategos.components.shards import progress
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.transform import raw
from strategos.components.transformed.graph import TransformGraph
from strategos.components.transformed.specs import is_fixed, widths
from strategos.components.wording import abridged, counted, cut

_Done = tuple[dict[str, WrittenSplit], dict[str, int]]

_SHOWN_NAMES = 8
_SHOWN = 500  # characters of a row in an error


def materialize(
    engine: Engine,
    graph: str,
    files: Mapping[str, Sequence[str]],
    examples: str,
) -> dict[str, int]:
    """Transforms raw examples and writes them as TFRecords, in the same order.

    If all features are numbers of fixed size, their columns are written beside them,
    for the Trainer.

    Args:
      engine: Runs the work on the files.
      graph: Folder of the transform graph.
      files: The raw examples of each split: files of columns, or TFRecord files.
      examples: URI of the artifact that gets them.

    Returns:
      The number of rows of each split.

    Raises:
      UserError: An operation of the graph fails on a row.
    """
    shards = [(split, file) for split, some in files.items() for file in some]
    done: _Done = ({}, {})
    try:
        with exchange.sent(engine.exchange, graph) as place:
            work = _Shard(place, examples)
            if shards:
                done = fold(engine, shards, work, _merge, examples)
    finally:
        _load.cache_clear()  # another graph may come to the same folder
    written_splits, not_finite = done
    _warn(not_finite, sum(records.rows for records, _ in written_splits.values()))
    nothing = Written(), Written()
    written = {split: written_splits.get(split, nothing) for split in files}
    splits.publish(examples, written)
    return {split: records.rows for split, (records, _) in written.items()}


@dataclasses.dataclass(frozen=True)
class _Shard:
    """Transforms one file.

    Returns the files written for its split, and by feature the number of rows with a
    number that is not finite.
    """

    graph: str
    examples: str

    def __call__(self, shard: tuple[str, str]) -> _Done:
        split, file = shard
        transformer = _transformer(self.graph)
        writer = splits.SplitWriter(self.examples)
        not_finite: dict[str, int] = collections.Counter()
        for batch in transformer.transformed(file):
            not_finite.update(_not_finite(batch))
            writer.write(encode.serialize(batch), transformer.compact(batch))
            progress.add(batch.num_rows)
        return {split: writer.close()}, not_finite


def _merge(earlier: _Done, later: _Done) -> _Done:
    written_splits, not_finite = earlier
    for split, written in later[0].items():
        mine = written_splits.get(split)
        written_splits[split] = splits.merged(mine, written) if mine else written
    return written_splits, collections.Counter(not_finite) + collections.Counter(
        later[1]
    )


def _not_finite(batch: pa.RecordBatch) -> dict[str, int]:
    """By feature, the number of rows with a number that is not finite."""
    counts_of = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_floating(column.type.value_type):
            broken = ~np.isfinite(column.values.to_numpy(zero_copy_only=False))
            if broken.any():
                ends = column.offsets.to_numpy()
                before = np.append(0, np.cumsum(broken))[ends]
                counts_of[name] = int(np.count_nonzero(np.diff(before)))
    return counts_of


def _warn(not_finite: Mapping[str, int], rows: int) -> None:
    """Warns of features that most losses of training cannot take."""
    if not_finite:
        shown = [f"`{name}` in {n:,}" for name, n in sorted(not_finite.items())]
        events.emit(
            "warning",
            message="`preprocessing_fn` makes NaN or infinite numbers, of "
            f"{counted(rows, 'row')}: {abridged(shown, _SHOWN_NAMES)}. One NaN or "
            "infinite value makes a mean and a variance of all rows NaN; look for a "
            "division by zero, a logarithm, and such numbers in the data.",
        )


_loading = threading.Lock()


def _transformer(folder: str) -> _Transformer:
    """The transformer of a graph; a process keeps the last one."""
    with _loading:
        return _load(folder)


@functools.lru_cache(maxsize=1)
def _load(folder: str) -> _Transformer:
    return _Transformer(folder)


class _Transformer:
    """Applies a transform graph to raw examples; several threads may share it.

    Args:
      folder: Folder of the transform graph, from `exchange.sent`.
    """

    def __init__(self, folder: str):
        output = tft.TFTransformOutput(exchange.local(folder))
        graph = TransformGraph(output)
        self._raw_schema = output.raw_metadata.schema
        self._needed = sorted(graph.raw_features_of(graph.outputs))
        self._adapter = raw.reader(self._raw_schema, self._needed).TensorAdapter()
        self._apply = tf.function(
            lambda rows: graph.apply(rows, graph.outputs),
            input_signature=[self._adapter.TypeSpecs()],
            autograph=False,
        ).get_concrete_function()
        schema = output.transformed_metadata.schema
        self._converter = impl_helper.make_tensor_to_arrow_converter(schema)
        self._spec = output.transformed_feature_spec()
        sizes = collections.ChainMap(*widths(self._spec).values())
        self._lists = {name for name, size in sizes.items() if size != 1}
        self._is_fixed = is_fixed(self._spec)

    def transformed(self, file: str) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file as columns of tf.Examples.

        Args:
          file: File of columns or TFRecord file.

        Raises:
          UserError: An operation of the graph fails on a row.
        """
        for batch in raw.batches(file, self._raw_schema, self._needed):
            try:
                tensors = self._transform(batch)
            except (tf.errors.OpError, ValueError) as error:
                raise self._explained(error, batch) from error
            yield self._as_lists(self._converter.convert(tensors))

    def compact(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The columns for the Trainer; None if it has to parse tf.Examples anyway.

        Args:
          batch: From `transformed`.
        """
        return columns.compact(batch, self._lists) if self._is_fixed else None

    def _transform(self, batch: pa.RecordBatch) -> dict[str, Any]:
        tensors = self._adapter.ToBatchTensors(batch, produce_eager_tensors=True)
        return self._apply(tensors)

    def _explained(self, error: Exception, batch: pa.RecordBatch) -> UserError:
        """The error of a failed batch; names the row, if one row fails by itself."""
        failing = batch
        while failing is not None and failing.num_rows > 1:
            failing, error = self._failing_half(failing, error)
        message = getattr(error, "message", str(error.__cause__ or error))
        reason = raw.reason(message, batch if failing is None else failing)
        where = "together on some rows" if failing is None else f"on {_row(failing)}"
        return UserError(
            f"`preprocessing_fn` fails {where}: {reason}",
            remedy="Correct the data, or let `preprocessing_fn` take such rows.",
        )

    def _failing_half(
        self, batch: pa.RecordBatch, error: Exception
    ) -> tuple[pa.RecordBatch | None, Exception]:
        """The half that fails, with its error; None if neither does."""
        for rows in np.array_split(np.arange(batch.num_rows), 2):
            # Of slices, the adapter would read the wrong rows.
            part = [column.take(pa.array(rows)) for column in batch.columns]
            half = pa.RecordBatch.from_arrays(part, schema=batch.schema)
            try:
                self._transform(half)
            except (tf.errors.OpError, ValueError) as half_error:
                return half, half_error
        return None, error

    def _as_lists(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The features of tf.Examples, as TFT's schema names them."""
        lists: dict[str, pa.ListArray] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            spec = self._spec.get(name)  # None: a part of a sparse feature
            if isinstance(spec, tf.io.RaggedFeature):
                lists |= _ragged_columns(spec, column)
            else:
                offsets = column.offsets.to_numpy()
                lists[name] = _list_array(offsets, column.values)
        return pa.RecordBatch.from_pydict(lists)


def _row(batch: pa.RecordBatch) -> str:
    """The values of the only row of a batch, as text for a message."""
    pairs = zip(batch.schema.names, batch.columns, strict=True)
    return cut(str({name: column[0].as_py() for name, column in pairs}), _SHOWN)


def _ragged_columns(
    spec: tf.io.RaggedFeature, column: pa.Array
) -> Iterator[tuple[str, pa.ListArray]]:
    """The columns of a ragged feature: row lengths of each inner level, and values.

    Args:
      spec: Names these columns. TFT's schema allows uniform dimensions innermost only.
      column: A list array per row, nested once more for each `RowLengths` of `spec`.
    """
    offsets, values = column.offsets.to_numpy(), column.values
    for partition in spec.partitions:
        if isinstance(partition, tf.io.RaggedFeature.RowLengths):
            inner = values.offsets.to_numpy()
            yield partition.key, _list_array(offsets, pa.array(np.diff(inner)))
            offsets, values = inner[offsets], values.values
    yield spec.value_key, _list_array(offsets, values)


def _list_array(offsets: np.ndarray, values: pa.Array) -> pa.ListArray:
    """Lists as `encode.serialize` expects them; TFT's lists have 64-bit offsets."""
    if pa.types.is_large_binary(values.type):
        values = values.cast(pa.binary())
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
