"""Measures the analysis of one vocabulary: of many distinct values, and of many tokens.

    python benchmarks/vocabulary.py --workers 1 2

Prints wall and CPU seconds (user and system, helpers too) and the peak memory of each
analysis, in a process of its own.
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
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

CASES = {
    "distinct": (3_000_000, 1, 1_040_000),
    "tokens": (1_000_000, 32, 20_000),
    "texts": (1_000_000, 32, 20_000),
}
"""By name: rows, tokens in each, distinct tokens; `texts` are split by the function."""
_SHARD_ROWS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        folder, case, workers = arguments.one
        print(json.dumps(measure(folder, case, int(workers))))
        return
    for case in arguments.cases:
        with tempfile.TemporaryDirectory() as folder:
            write(folder, case, arguments.scale)
            for workers in arguments.workers:
                command = [sys.executable, __file__, "--one", folder, case]
                ran = subprocess.run(
                    [*command, str(workers)], stdout=subprocess.PIPE, check=True
                )
                wall, cpu, megabytes = json.loads(ran.stdout.splitlines()[-1])
                used = f"{wall:.1f} s, {cpu:.1f} CPU s, {megabytes:,} MB"
                print(f"{case}, {workers} workers: {used}")


def write(folder: str, case: str, scale: float) -> None:
    """Writes the columns of raw examples, in several files."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from strategos.components.records import columns
    from strategos.components.records import write as write_files

    rows, tokens, distinct = CASES[case]
    draw = np.random.default_rng(1)
    texts = pa.array([f"token{n * 7919}" for n in range(distinct)], pa.binary())
    for shard in range(max(1, int(rows * scale) // _SHARD_ROWS)):
        writer = columns.ColumnWriter(folder, shard)
        found = texts.take(pa.array(draw.integers(0, distinct, _SHARD_ROWS * tokens)))
        offsets = pa.array(np.arange(0, len(found) + 1, tokens, dtype=np.int32))
        lists = pa.ListArray.from_arrays(offsets, found)
        if case == "texts":
            joined = pc.binary_join(lists, b" ")
            lists = pa.ListArray.from_arrays(
                pa.array(np.arange(len(joined) + 1, dtype=np.int32)), joined
            )
        batch = pa.record_batch([lists], ["x"])
        for start in range(0, _SHARD_ROWS, 8192):
            kept = ["x"] if case == "tokens" else []
            writer.write(columns.compact(batch.slice(start, 8192), kept))
        (name,) = writer.close().files
        source = os.path.join(write_files.unpublished(folder), name)
        os.rename(source, os.path.join(folder, f"{shard:05d}.arrow"))


def measure(folder: str, case: str, workers: int) -> tuple[float, float, int]:
    """Wall and CPU seconds of an analysis, and the peak memory of its process in MB."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.shards.engine import Engine
    from strategos.components.transform import analysis

    schema = schema_pb2.Schema()
    feature = schema.feature.add(name="x", type=schema_pb2.BYTES)
    if case != "tokens":
        feature.presence.min_fraction = 1
        feature.shape.dim.add(size=1)
    files = [
        os.path.join(folder, f) for f in sorted(os.listdir(folder)) if "arrow" in f
    ]
    with tempfile.TemporaryDirectory() as output:
        wall, started = time.monotonic(), cpu()
        analysis.analyze(
            Engine(workers=workers), FUNCTIONS[case], files, schema, output
        )
        used = time.monotonic() - wall, cpu() - started
    return *used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def cpu() -> float:
    found = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)


def of_tokens(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    import tensorflow_transform as tft

    tft.vocabulary(inputs["x"], vocab_filename="x")
    return {"x": inputs["x"]}


def of_texts(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    import tensorflow as tf

    return of_tokens({"x": tf.strings.split(tf.reshape(inputs["x"], [-1])).to_sparse()})


FUNCTIONS = {"distinct": of_tokens, "tokens": of_tokens, "texts": of_texts}

if __name__ == "__main__":
    main()
