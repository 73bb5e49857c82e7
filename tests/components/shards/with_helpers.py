"""Writes what components write, with helpers and without: `with_helpers.py TABLE OUT`.

A program of its own, as the fork server must start before TensorFlow executes anything.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from strategos.components import fork_server
from strategos.components.data_files import shards
from strategos.components.example_gen import executor as example_gen
from strategos.components.shards import helpers, threads
from strategos.components.shards.engine import Engine
from strategos.components.statistics_gen import executor as statistics_gen
from strategos.components.transform import analysis
from strategos.components.transform.materialize import materialize


def main(table: str, out: str) -> None:
    """Writes `alone/` and `helped/` to the folder `out`."""
    fork_server.start()
    shards._LEAST_BYTES = os.path.getsize(table) // 8
    threads._PACE_SECONDS = threads._LEAST_SECONDS = 0.0
    started, start = 0, helpers.Helper.start

    def counted(work):
        nonlocal started
        started += 1
        return start(work)

    helpers.Helper.start = counted
    for name, workers in (("alone", 1), ("helped", 3)):
        os.environ.update(Engine(workers=workers).to_environment())
        here, graph = f"{out}/{name}", f"{out}/graph-{name}"
        _write(table, here)
        raw = sorted(str(path) for path in Path(here).glob("examples/Split-train/*"))
        engine = Engine(workers=workers)
        analysis.analyze(engine, _scaled, raw, _schema(), graph)
        materialize(engine, graph, {"train": raw}, f"{here}/transformed")
    print(started)


def _write(table: str, folder: str) -> None:
    from tfx.types import standard_artifacts

    examples = standard_artifacts.Examples()
    examples.uri = f"{folder}/examples"
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = f"{folder}/statistics"
    names = ("fingerprint", "schema_file", "schema_fingerprint")
    names += ("label", "stack", "unlabelled")
    properties = dict.fromkeys(names, "") | {
        "pattern": table,
        "spans": "[]",
        "null_values": "[]",
        "unlabelled": "keep",
        "split": json.dumps({"by": "ratio", "keys": [], "train": 8, "eval": 2}),
    }
    example_gen.Executor().Do({}, {"examples": [examples]}, properties)
    statistics_gen.Executor().Do(
        {"examples": [examples]}, {"statistics": [statistics]}, {}
    )


def _schema():
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema()
    schema.feature.add(name="key", type=schema_pb2.INT)
    schema.feature.add(name="text", type=schema_pb2.BYTES)
    for feature in schema.feature:
        feature.value_count.max = 1
    return schema


def _scaled(inputs):
    import tensorflow as tf
    import tensorflow_transform as tft

    key = tf.cast(inputs["key"], tf.float32)  # sparse
    text = inputs["text"]
    of_text = tft.compute_and_apply_vocabulary(text, vocab_filename="text")
    again = tft.vocabulary(tf.strings.as_string(of_text.values))  # a second phase
    return {
        "key": tft.scale_to_z_score(key),
        "text": text,
        "id": of_text,
        "size": tft.apply_vocabulary(text, again),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
