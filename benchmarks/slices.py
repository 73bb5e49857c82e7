"""Measures an evaluation by number of slices: sums, metrics, bounds and files.

    python benchmarks/slices.py --rows 300000 --slices 100 11000 50000

Prints CPU seconds (user and system) and the memory beyond the imports. Each figure is
of a separate process; scoring is left out. All metrics of task binary.

    python benchmarks/slices.py --rows 300000 --slices 100 --tfma

The same beside TFMA's own run on the same predictions (`analyze_raw_data`, on Beam's
direct runner): 50 metrics, most of them precision and recall at a threshold.
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
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--slices", type=int, nargs="+", default=[100, 11_000, 50_000])
    parser.add_argument("--compared", action="store_true", help="two models")
    parser.add_argument("--weighted", action="store_true", help="rows have weights")
    parser.add_argument("--tfma", action="store_true", help="beside TFMA's own run")
    parser.add_argument("--one", choices=("ours", "tfma"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (slices,) = arguments.slices
        sized = arguments.rows, slices
        if arguments.one == "tfma":
            print(json.dumps(measure_tfma(*sized)))
        else:
            how = arguments.compared, arguments.weighted, arguments.tfma
            print(json.dumps(measure(*sized, *how)))
        return
    sides = ["ours", "tfma"] if arguments.tfma else ["ours"]
    for slices in arguments.slices:
        for side in sides:
            command = [sys.executable, __file__, "--rows", str(arguments.rows)]
            command += ["--slices", str(slices), *["--compared"] * arguments.compared]
            command += ["--one", side, *["--tfma"] * arguments.tfma]
            command += ["--weighted"] * arguments.weighted
            ran = subprocess.run(command, capture_output=True, text=True, check=True)
            cpu, megabytes = json.loads(ran.stdout.splitlines()[-1])
            print(f"{side}, {slices:,} slices: {cpu:.2f} s {megabytes:,} MB")


def many_metrics() -> list[str]:
    """50 metrics of task binary that TFMA has, too."""
    from strategos.components.evaluation.metrics import METRICS, names

    known = [name for name in names("binary") if METRICS[name].tfma]
    count = (50 - len(known)) // 2
    at = [f"{(i + 1) / (count + 1):.2f}" for i in range(count)]
    return known + [f"{name}@{x}" for x in at for name in ("precision", "recall")]


def measure_tfma(rows: int, slices: int) -> tuple[float, int]:
    """As `measure`, of TFMA's own run."""
    import pandas as pd
    import tensorflow_model_analysis as tfma

    from strategos.components.evaluator.tfma import eval_config

    section = {"task": "binary", "metrics": many_metrics(), "slices": ["id"]}
    config = eval_config.build(section, "label")
    del config.model_specs[1:]
    config.model_specs[0].Clear()
    config.model_specs[0].label_key = "label"
    config.model_specs[0].prediction_key = "prediction"
    frames = [
        pd.DataFrame({"label": label, "prediction": score, "id": ids})
        for label, score, ids in generated(rows, slices)
    ]
    before, started = peak(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        tfma.analyze_raw_data(pd.concat(frames), config, output_path=folder)
    return time.process_time() - started, peak() - before


def measure(
    rows: int, slices: int, compared: bool, weighted: bool, many: bool
) -> tuple[float, int]:
    """CPU seconds of an evaluation, and the memory that it takes in MB."""
    import tensorflow_model_analysis as tfma

    from strategos.components.evaluation import metrics
    from strategos.components.evaluation.outcome import summary
    from strategos.components.evaluation.outcome.bounds import judge
    from strategos.components.evaluator.tfma import eval_config, result_files

    bound = {"at_least": 0.5, "slices": {"id": {"at_least": 0.2}}}
    names = many_metrics() if many else metrics.names("binary")
    section = {"task": "binary", "metrics": names, "bounds": {"auc": bound}}
    config = tfma.utils.update_eval_config_with_defaults(
        eval_config.build(section, "label"), has_baseline=compared, rubber_stamp=True
    )
    before, started = peak(), time.process_time()
    found = summed(names, rows, slices, compared, weighted)
    pieces = found.metrics("candidate", "baseline" if compared else None)
    checks = judge(section["bounds"], pieces)
    verdict = summary.summarize(
        task="binary", label="label", slices=pieces, checks=checks
    )
    with tempfile.TemporaryDirectory() as folder:
        result_files.write(
            folder, config, pieces, checks, blessed=True, data="", models={}
        )
        with open(f"{folder}/{summary.FILE}", "w") as file:
            file.write(json.dumps(verdict, indent=1))
    return time.process_time() - started, peak() - before


def summed(
    names: list[str], rows: int, slices: int, compared: bool, weighted: bool
) -> Any:
    """The sums of generated rows, batch by batch."""
    import numpy as np

    from strategos.components.evaluation.classes.entries import SliceMembership
    from strategos.components.evaluation.sums import Sums

    found = Sums(names, "binary")
    for label, score, ids in generated(rows, slices):
        values, code = np.unique(ids, return_inverse=True)
        member = SliceMembership(values.tolist(), np.arange(len(label)), code)
        scores = {"candidate": {"prediction": score}}
        if compared:
            scores["baseline"] = {"prediction": score * 0.9}
        part = Sums(names, "binary")
        part.add(label, scores, {"id": member}, 1 + ids % 3 if weighted else None)
        part.compact()
        found.merge(part)
    return found


def generated(rows: int, slices: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yields labels, scores and slices of the rows of a batch."""
    import numpy as np

    draw = np.random.default_rng(0)
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        score = draw.beta(1, 3, count).astype(np.float32).astype(np.float64)
        label = (draw.random(count) < score).astype(np.float64)
        yield label, score, draw.integers(0, slices, count)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
