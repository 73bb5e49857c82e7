"""Measures Transform's analysis of many spans of which one is new.

    python benchmarks/spans.py --spans 30 --rows 30000 --columns 40

Prints wall and CPU seconds (user and system, helpers too) of an analysis of all spans,
and of one with the states that an earlier run kept of all spans but the newest. Each
figure is of a separate process, without imports.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=30)
    parser.add_argument("--rows", type=int, default=30_000, help="of a span")
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--distinct", type=int, nargs="+", default=[50, 1_000, 30_000])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        folder, states, spans = arguments.one
        used = measure(folder, states, int(spans), arguments)
        print(json.dumps(used))
        return
    for distinct in arguments.distinct:
        with tempfile.TemporaryDirectory() as folder:
            write(folder, distinct, arguments)
            report(folder, distinct, arguments)


def report(folder: str, distinct: int, arguments: argparse.Namespace) -> None:
    states, spans = f"{folder}/states", arguments.spans
    for name, place, number in (
        ("all spans", "", spans),
        ("all but the newest, kept", states, spans - 1),
        ("all, with those states", states, spans),
    ):
        command = [sys.executable, __file__, *sys.argv[1:], "--one", folder, place]
        ran = subprocess.run(
            [*command, str(number)], stdout=subprocess.PIPE, check=True
        )
        wall, cpu = json.loads(ran.stdout.splitlines()[-1])
        kept = sum(path.stat().st_size for path in Path(states).glob("*")) / 1e6
        used = f"{wall:.1f} s, {cpu:.1f} CPU s, {kept:.1f} MB of states"
        print(f"{distinct} distinct tokens, {name}: {used}", flush=True)


def write(folder: str, distinct: int, arguments: argparse.Namespace) -> None:
    """Writes the columns of raw examples, a file for each span."""
    import numpy as np
    import pyarrow as pa
    from columns import names

    from strategos.components.records import columns
    from strategos.components.records import write as write_files

    draw, rows = np.random.default_rng(1), arguments.rows
    texts = pa.array([f"token{n * 7919}" for n in range(distinct)], pa.binary())
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32))
    for span in range(arguments.spans):
        writer = columns.ColumnWriter(folder, span)
        found = {
            name: pa.ListArray.from_arrays(
                offsets, texts.take(pa.array(draw.integers(0, distinct, rows)))
            )
            for name in names(arguments.columns)
        }
        batch = pa.RecordBatch.from_pydict(found)
        for start in range(0, rows, 8192):
            writer.write(columns.compact(batch.slice(start, 8192), ()))
        (name,) = writer.close().files
        source = os.path.join(write_files.unpublished(folder), name)
        os.rename(source, os.path.join(folder, f"{span:05d}.arrow"))


def measure(
    folder: str, states: str, spans: int, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Wall and CPU seconds of an analysis."""
    from columns import names, vocabularies
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.shards.engine import Engine
    from strategos.components.transform import STATES_VARIABLE, analysis

    schema = schema_pb2.Schema()
    for name in names(arguments.columns):
        feature = schema.feature.add(name=name, type=schema_pb2.BYTES)
        feature.presence.min_fraction = 1
        feature.shape.dim.add(size=1)
    files = sorted(map(str, Path(folder).glob("*.arrow")))[:spans]
    contents = {x: hashlib.sha256(Path(x).read_bytes()).hexdigest() for x in files}
    os.environ[STATES_VARIABLE] = states
    engine = Engine(workers=arguments.workers)
    with tempfile.TemporaryDirectory() as output:
        wall, started = time.monotonic(), cpu()
        analysis.analyze(engine, vocabularies, files, schema, output, contents)
        return time.monotonic() - wall, cpu() - started


def cpu() -> float:
    found = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)


if __name__ == "__main__":
    main()
