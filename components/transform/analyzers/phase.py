"""One phase: reads the shards once, for all analyzers with known inputs."""

from __future__ import annotations

import dataclasses
import functools
import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from apache_beam.internal import pickler
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.files import exchange, storage
from strategos.components.shards import progress
from strategos.components.shards.engine import Engine
from strategos.components.shards.fold import fold
from strategos.components.transform import raw
from strategos.components.transform.analyzers import kept_states
from strategos.components.transform.analyzers.accumulators import Reading
from strategos.components.transform.analyzers.tft_private import Traced
from strategos.components.wording import counted

_OF_WORKERS = 1 << 30  # bytes; the counts of a shard travel to other workers

States = dict[str, Any]
"""State of each accumulator by label."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows to analyze.

    Attributes:
      engine: Runs the work on the files.
      files: Files of the raw examples: files of columns, or TFRecords.
      schema: From `raw.complete`.
      temporary: Local folder for graphs.
      shared: Folder for files that helpers and workers exchange: a path or URL.
      contents: By file, the digest of its content, if known.
      kept: Folder of the states that earlier runs kept; "" for none.
    """

    engine: Engine
    files: Sequence[str]
    schema: schema_pb2.Schema
    temporary: str
    shared: str
    contents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kept: str = ""

    @property
    def bytes(self) -> int:
        """Memory for counts of tokens; of workers elsewhere nobody knows it."""
        return _OF_WORKERS if self.engine.exchange else self.engine.bytes


def states(rows: Rows, traced: Traced, accumulators: Reading) -> States:
    """Reads all rows once and returns the states of the analyzers.

    Args:
      rows: The rows.
      traced: The graph, with the results that these analyzers depend on.
      accumulators: By label, each accumulator and the names of its input tensors.
    """
    names = {name for _, read in accumulators.values() for name in read}
    tensors = {name: traced.graph.get_tensor_by_name(_full(name)) for name in names}
    needed = traced.needed(tensors)
    part = traced.part(needed, tensors)
    if not needed or not rows.files:
        return {label: each.new() for label, (each, _) in accumulators.items()}
    shards = _shards(rows, part.graph, needed, accumulators)
    most = kept_states.room(len(shards))
    own = _Part(traced, part, rows)
    work = _Shard(own, rows.schema, needed, accumulators, most)
    progress.begin(None)  # of each phase anew
    by_label = fold(rows.engine, shards, work, work.merge, rows.shared, paced=True)
    kept_states.prune(rows.kept)
    return by_label


def _shards(
    rows: Rows, graph: tf.Graph, needed: Sequence[str], reading: Reading
) -> list[tuple[str, str]]:
    """Each file of examples, with the file of its states; "" where none may be kept."""
    described: Sequence[str] = []
    if rows.kept:
        described = kept_states.described(graph, rows.schema, needed, reading)
    contents = [rows.contents.get(file) for file in rows.files]
    paths = kept_states.paths(rows.kept, contents, described)
    total, known = len(paths), sum(map(os.path.exists, paths))
    if known:
        files = counted(total, "file")
        message = f"analyzing {total - known:,} of {files}; {known:,} are as before"
        events.emit("progress", message=message)
    return list(zip(rows.files, paths, strict=True))


def failed_rows(reason: str) -> UserError:
    """The error of rows that `preprocessing_fn` does not take.

    Args:
      reason: From `raw.reason` or `operation_error`.
    """
    return UserError(
        f"`preprocessing_fn` fails on rows that its analyzers need: {reason}",
        remedy="Correct the data, or let `preprocessing_fn` take such rows.",
    )


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:0"


class _Part:
    """The part of the graph that the analyzers of a phase read.

    Pickled, it is a folder: others load the graph that this process has traced.
    """

    def __init__(self, traced: Traced, apply: Any, rows: Rows):
        self._traced, self._apply = traced, apply
        self._rows, self._folder = rows, ""  # saved to, when it is pickled
        self._lock = threading.Lock()

    def __call__(self, tensors: Sequence[Any]) -> dict[str, tf.Tensor]:
        """The values of the analyzers' tensors, by name, of a batch of inputs."""
        return self._apply(*tf.nest.flatten(tensors, expand_composites=True))

    def __reduce__(self) -> tuple[type, tuple[str]]:
        with self._lock:
            self._folder = self._folder or self._save()
        return _LoadedPart, (self._folder,)

    def _save(self) -> str:
        folder = tempfile.mkdtemp(prefix="part-", dir=self._rows.temporary)
        self._traced.save_part(self._apply, folder)
        if not self._rows.engine.exchange:
            return folder
        url = f"{self._rows.shared}/{os.path.basename(folder)}"
        storage.put(folder, url)
        return url


class _LoadedPart:
    """A part of the graph in another process, loaded when it is first called.

    Args:
      folder: The folder, or its URL.
    """

    def __init__(self, folder: str):
        self._folder, self._lock = folder, threading.Lock()

    def __call__(self, tensors: Sequence[Any]) -> dict[str, tf.Tensor]:
        """See `_Part`."""
        with self._lock:
            apply = self._loaded.transform_fn
        return apply(*tf.nest.flatten(tensors, expand_composites=True))

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return _LoadedPart, (self._folder,)

    @functools.cached_property
    def _loaded(self) -> Any:
        return tf.saved_model.load(exchange.local(self._folder))


class _Shard:
    """Analyzes one file; the result is the state of each accumulator.

    Args:
      part: The graph.
      schema: From `raw.complete`.
      needed: Names of the inputs of the graph.
      accumulators: By label, with the names of the tensors that each one reads.
      most: Bytes that the states of a shard may take to be kept.
    """

    def __init__(
        self,
        part: Callable[[Sequence[Any]], dict[str, tf.Tensor]],
        schema: schema_pb2.Schema,
        needed: Sequence[str],
        accumulators: Reading,
        most: int,
    ):
        self._part, self._schema, self._needed = part, schema, needed
        self._accumulators, self._most = accumulators, most

    def __getstate__(self) -> dict[str, Any]:
        # Beam's pickler, as TFT's combiners hold functions that are no module's.
        packed = pickler.dumps(self._accumulators)
        return {**self.__dict__, "_accumulators": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._accumulators = pickler.loads(state["_accumulators"])

    def __call__(self, shard: tuple[str, str]) -> States:
        file, path = shard
        states = kept_states.read(path, self._accumulators)
        if states is None:
            states = self._analyzed(file)
            kept_states.write(path, states, self._most)
        return states

    def _analyzed(self, file: str) -> States:
        states = {label: each.new() for label, (each, _) in self._accumulators.items()}
        adapter = raw.reader(self._schema, self._needed).TensorAdapter()
        for batch in raw.batches(file, self._schema, self._needed):
            tensors = adapter.ToBatchTensors(batch, produce_eager_tensors=True)
            try:
                values = self._part([tensors[name] for name in self._needed])
            except (tf.errors.OpError, ValueError) as error:
                reason = getattr(error, "message", str(error))
                raise failed_rows(raw.reason(reason, batch)) from error
            for label, (accumulator, read) in self._accumulators.items():
                columns = tuple(values[name] for name in read)
                states[label] = accumulator.add(states[label], columns)
            progress.add(batch.num_rows)
        return {
            label: accumulator.compact(states[label])
            for label, (accumulator, _) in self._accumulators.items()
        }

    def merge(self, earlier: States, later: States) -> States:
        """The states of two neighbours."""
        return {
            label: accumulator.merge(earlier[label], later[label])
            for label, (accumulator, _) in self._accumulators.items()
        }
