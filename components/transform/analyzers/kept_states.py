"""States of shards in files, so that a later run analyzes only new shards."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.shards import kept
from strategos.components.transform import raw
from strategos.components.transform.analyzers import fingerprint
from strategos.components.transform.analyzers.accumulators import Reading
from strategos.components.transform.analyzers.counts import Counts
from strategos.components.transform.analyzers.token_states import TokenStates

_MOST_FILES = 1 << 14
_MOST_BYTES = 2 << 30
_OF_SHARD = 64 << 20  # bytes of a file
_PHASES = 2  # with room for their states

_ANALYZERS = "tensorflow_transform.analyzers"
_SKETCHES = "tfx_bsl.cc.tfx_bsl_extension.sketches"
_STATES = kept.Format(
    version=1,
    classes=kept.ARRAYS
    | {
        (_ANALYZERS, "_WeightedMeanAndVarAccumulator"),
        (_ANALYZERS, "_LMomentsAccumulator"),
        (_SKETCHES, "QuantilesSketch"),
        (_SKETCHES, "MisraGriesSketch"),
    },
    most_files=_MOST_FILES,
    most_bytes=_MOST_BYTES,
)
_PACKAGES = (
    *("tensorflow", "tensorflow-transform", "tfx-bsl", "apache-beam"),
    *("numpy", "pyarrow"),
)


def paths(
    folder: str, contents: Sequence[str | None], parts: Sequence[str]
) -> list[str]:
    """The files of the states of shards, in order; "" where none may be kept.

    Args:
      folder: The folder of all states; "" to keep none.
      contents: The digest of each shard's file of raw examples, if known.
      parts: From `described`.
    """
    if not (folder and parts) or _PHASES * len(contents) > _MOST_FILES:
        return [""] * len(contents)
    stack = kept.versions(*_PACKAGES)
    return [_path(folder, [*parts, *stack, each]) if each else "" for each in contents]


def _path(folder: str, parts: Sequence[str]) -> str:
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return os.path.join(folder, name)


def room(shards: int) -> int:
    """Bytes for the states of a shard, so that those of all shards can be kept.

    Args:
      shards: Number of shards.
    """
    return min(_OF_SHARD, _MOST_BYTES // (_PHASES * shards))


def read(path: str, reading: Reading) -> dict[str, Any] | None:
    """The states of a shard by label, if they are kept.

    Args:
      path: From `paths`.
      reading: The accumulators.
    """
    states = _STATES.read(Path(path)) if path else None
    if states is None:
        return None
    for label, (accumulator, _) in reading.items():
        state = accumulator.new()
        if isinstance(state, Counts | TokenStates):
            state.unpack(states[label])
            states[label] = state
    return states


def write(path: str, states: Mapping[str, Any], most: int) -> None:
    """Keeps the states of a shard, unless they are on disk or take much memory.

    Args:
      path: From `paths`.
      states: States by label, each compact.
      most: From `room`.
    """
    packed, left = dict(states), most
    for label, state in states.items() if path else ():
        if isinstance(state, Counts | TokenStates):
            content = packed[label] = state.packed(left)
            if content is None:
                return
            left -= len(content) if isinstance(content, bytes) else 0
    if path:
        _STATES.write(Path(path), packed, most)


def prune(folder: str) -> None:
    """Removes the states that were used least recently, if there are many.

    Args:
      folder: As for `paths`.
    """
    if folder:
        _STATES.prune(Path(folder))


def described(
    graph: tf.Graph,
    schema: schema_pb2.Schema,
    needed: Sequence[str],
    reading: Reading,
) -> list[str]:
    """The dependencies of states besides the rows; [] if they are not known.

    Args:
      graph: The graph of the phase.
      schema: From `raw.complete`.
      needed: Names of the inputs of the graph.
      reading: The accumulators.
    """
    try:
        hashes = fingerprint.of_graph(graph), fingerprint.of_accumulators(reading)
    except fingerprint.UnknownError as error:
        logging.info("states of shards are not kept: %s", error)
        return []
    reader = raw.reader(schema, needed)
    columns = sorted(map(str, reader.ArrowSchema()))
    tensors = reader.TensorRepresentations()
    return [*hashes, *columns, *(f"{x} {tensors[x]}" for x in needed)]
