"""Measures Transform's analysis by number of columns, here and as TFT's on Beam.

    python benchmarks/columns.py --rows 1000 --columns 1 20 40

Prints CPU seconds (user and system), the cost of a further column, and the peak memory.
Each figure is of a separate process, without imports; one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

KINDS = ("vocabulary", "z-score")
DISTINCT = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 20, 40])
    parser.add_argument("--beam", action="store_true", help="TFT's on Beam, too")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, columns, side = arguments.one
        print(json.dumps(measure(kind, int(columns), arguments.rows, side)))
        return
    for kind in KINDS:
        for side in ("here", "beam") if arguments.beam else ("here",):
            report(kind, side, arguments.rows, arguments.columns)


def report(kind: str, side: str, rows: int, columns: Sequence[int]) -> None:
    found = []
    for number in columns:
        command = [sys.executable, __file__, "--rows", str(rows), "--one"]
        command += [kind, str(number), side]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        cpu, megabytes = json.loads(ran.stdout.splitlines()[-1])
        found.append((number, cpu))
        print(f"{kind} {side}: {number} columns {cpu:.2f} s {megabytes:,} MB")
    (few, least), (many, most) = found[0], found[-1]
    if many > few:
        further = (most - least) / (many - few)
        print(f"{kind} {side}: {further:.3f} s for a further column")


def measure(kind: str, columns: int, rows: int, side: str) -> tuple[float, int]:
    """CPU seconds of an analysis, and the peak memory of its process in MB."""
    from strategos.components.shards.engine import Engine
    from strategos.components.transform import analysis, raw

    with tempfile.TemporaryDirectory() as folder:
        file, schema = write(folder, kind, columns, rows)
        graph, started = f"{folder}/graph", time.process_time()
        if side == "here":
            engine = Engine(workers=1)
            analysis.analyze(engine, FUNCTIONS[kind], [file], schema, graph)
        else:
            schema = raw.complete(schema)
            analysis._analyze(Engine(), FUNCTIONS[kind], [file], schema, graph)
        used = time.process_time() - started
    return used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def write(folder: str, kind: str, columns: int, rows: int) -> tuple[str, Any]:
    """Writes raw examples; returns their file and schema."""
    import numpy as np
    import tensorflow as tf
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema, is_text = schema_pb2.Schema(), kind == "vocabulary"
    for name in names(columns):
        value_type = schema_pb2.BYTES if is_text else schema_pb2.FLOAT
        feature = schema.feature.add(name=name, type=value_type)
        feature.presence.min_fraction = 1
        feature.shape.dim.add(size=1)
    draw, file = np.random.default_rng(1), f"{folder}/data.gz"
    with tf.io.TFRecordWriter(file, "GZIP") as writer:
        for _ in range(rows):
            example = tf.train.Example()
            for name in names(columns):
                feature = example.features.feature[name]
                if is_text:
                    feature.bytes_list.value.append(b"w%d" % draw.integers(DISTINCT))
                else:
                    feature.float_list.value.append(draw.normal())
            writer.write(example.SerializeToString())
    return file, schema


def names(columns: int) -> list[str]:
    return [f"c{number}" for number in range(columns)]


def vocabularies(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    import tensorflow_transform as tft

    apply = tft.compute_and_apply_vocabulary
    return {name: apply(x, vocab_filename=name) for name, x in inputs.items()}


def z_scores(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    import tensorflow_transform as tft

    return {name: tft.scale_to_z_score(x) for name, x in inputs.items()}


FUNCTIONS = dict(zip(KINDS, (vocabularies, z_scores), strict=True))

if __name__ == "__main__":
    main()
