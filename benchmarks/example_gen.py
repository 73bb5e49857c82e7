"""Compares ExampleGen and StatisticsGen with TFX's, in one process, on the same rows.

    python benchmarks/example_gen.py --rows 100000

Prints CPU seconds (user and system), wall seconds and the ratios; checks that both
ExampleGens wrote the same multiset of rows. Imports and a small warm-up run of each
side are not measured.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf
from tfx.components.example_gen.csv_example_gen import executor as stock_examples
from tfx.components.statistics_gen import executor as stock_statistics
from tfx.proto import example_gen_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from strategos.components.example_gen import executor as our_examples
from strategos.components.statistics_gen import executor as our_statistics

SPLITS = '["train", "eval"]'
BEAM = ["--runner=DirectRunner", "--requirements_file=/dev/null"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--csv", type=Path, help="a CSV file to read instead")
    parser.add_argument("--ours-only", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        small = write_flights(root / "small" / "data.csv", 200)
        data = arguments.csv or write_flights(root / "data.csv", arguments.rows)
        print(f"{data.stat().st_size / 1e6:.0f} MB of CSV, seconds of CPU (wall)")
        sides = {"ours": (run_ours, our_statistics.Executor())}
        if not arguments.ours_only:
            context = stock_statistics.Executor.Context(beam_pipeline_args=BEAM)
            sides["stock"] = (run_stock, stock_statistics.Executor(context))
        costs = collections.defaultdict(dict)
        for side, (run, statistics) in sides.items():
            generate_statistics(statistics, run(small, root / f"{side}-small"))
            examples, costs["ExampleGen"][side] = clock(run, data, root / side)
            _, costs["StatisticsGen"][side] = clock(
                generate_statistics, statistics, examples
            )
        report(costs)
        if len(sides) == 2:
            same = multiset(root / "ours") == multiset(root / "stock")
            print("same rows:", "yes" if same else "NO")
            sys.exit(not same)


def write_flights(path: Path, rows: int) -> Path:
    """Writes random rows with the 19 columns of the flights of New York in 2013."""
    draw = random.Random(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    airports = ["".join(draw.choices("ABCDEFGH", k=3)) for _ in range(100)]
    tails = [f"N{i}AA" for i in range(4000)]
    names = (
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,"
        "arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,"
        "time_hour"
    )
    with open(path, "w") as file:
        print(names, file=file)
        for _ in range(rows):
            month, day = draw.randint(1, 12), draw.randint(1, 28)
            hour, minute, delay = (
                draw.randrange(24),
                draw.randrange(60),
                draw.gauss(5, 20),
            )
            gone = draw.random() > 0.025
            row = [2013, month, day, hour * 100 + minute if gone else ""]
            row += [hour * 100, round(delay) if gone else "", hour * 100 + 55]
            row += [hour * 100 + 50, round(delay, 1) if gone else ""]
            row += [draw.choice(["UA", "AA", "DL", "B6", "EV"]), draw.randrange(6000)]
            row += [draw.choice(tails), draw.choice(airports[:3])]
            row += [draw.choice(airports), draw.randrange(30, 400)]
            row += [draw.randrange(200, 5000), hour, minute]
            row += [f"2013-{month:02}-{day:02}T{hour:02}:00:00Z"]
            print(*row, sep=",", file=file)
    return path


def clock(function: Callable, *arguments) -> tuple[object, tuple[float, float]]:
    """Calls `function`; returns its result, and its seconds of CPU and wall clock."""
    cpu, wall = _cpu(), time.monotonic()
    result = function(*arguments)
    return result, (_cpu() - cpu, time.monotonic() - wall)


def _cpu() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_ours(data: Path, folder: Path) -> standard_artifacts.Examples:
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    split = {"by": "hash", "keys": ["tailnum", "day"], "train": 8, "eval": 2}
    properties = {"pattern": str(data), "spans": "[]", "split": json.dumps(split)}
    properties |= dict.fromkeys(["fingerprint", "schema_file", "label"], "")
    properties["null_values"] = "[]"
    our_examples.Executor().Do({}, {"examples": [examples]}, properties)
    return examples


def run_stock(data: Path, folder: Path) -> standard_artifacts.Examples:
    examples = standard_artifacts.Examples()
    examples.uri = str(folder)
    examples.split_names = SPLITS
    single = example_gen_pb2.Input.Split(name="single", pattern=data.name)
    splits = example_gen_pb2.SplitConfig()
    for name, buckets in (("train", 8), ("eval", 2)):
        splits.splits.add(name=name, hash_buckets=buckets)
    output = example_gen_pb2.Output(split_config=splits)
    properties = {
        "input_base": str(data.parent),
        "input_config": proto_utils.proto_to_json(
            example_gen_pb2.Input(splits=[single])
        ),
        "output_config": proto_utils.proto_to_json(output),
        "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
        "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
    }
    context = stock_examples.Executor.Context(beam_pipeline_args=BEAM)
    stock_examples.Executor(context).Do({}, {"examples": [examples]}, properties)
    return examples


def generate_statistics(executor, examples: standard_artifacts.Examples) -> None:
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = f"{examples.uri}-statistics"
    executor.Do(
        {"examples": [examples]},
        {"statistics": [statistics]},
        {"exclude_splits": "[]"},
    )


def report(costs: dict[str, dict[str, tuple[float, float]]]) -> None:
    for stage, sides in costs.items():
        figures = [f"{side} {c:.2f} ({w:.2f})" for side, (c, w) in sides.items()]
        if "stock" in sides:
            figures.append(f"stock / ours {sides['stock'][0] / sides['ours'][0]:.1f}")
        print(f"{stage:14}", "   ".join(figures))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"peak memory of this process {peak:.0f} MB")


def multiset(folder: Path) -> collections.Counter:
    """Counts each row over both splits, with features sorted by name.

    A missing value is an empty list in TFX's rows and no list in ours; both count as
    no list.
    """
    files = [str(path) for path in folder.glob("Split-*/*")]
    counts = collections.Counter()
    records = tf.data.TFRecordDataset(files, compression_type="GZIP")
    for record in records.as_numpy_iterator():
        example = tf.train.Example.FromString(record)
        for feature in example.features.feature.values():
            kind = feature.WhichOneof("kind")
            if kind and not getattr(feature, kind).value:
                feature.ClearField(kind)
        counts[example.SerializeToString(deterministic=True)] += 1
    return counts


if __name__ == "__main__":
    main()
