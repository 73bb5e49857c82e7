"""Measures an evaluation by number of slices: sums, metrics, bounds and files.

    python benchmarks/slices.py --rows 300000 --slices 100 11000 50000

Prints CPU seconds (user and system) and the memory beyond the imports. Each figure is
of a separate process; scoring is left out. All metrics of task binary.
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
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--slices", type=int, nargs="+", default=[100, 11_000, 50_000])
    parser.add_argument("--compared", action="store_true", help="two models")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        (slices,) = arguments.slices
        print(json.dumps(measure(arguments.rows, slices, arguments.compared)))
        return
    for slices in arguments.slices:
        command = [sys.executable, __file__, "--rows", str(arguments.rows), "--one"]
        command += ["--slices", str(slices), *["--compared"] * arguments.compared]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        cpu, megabytes = json.loads(ran.stdout.splitlines()[-1])
        print(f"{slices:,} slices: {cpu:.2f} s {megabytes:,} MB")


def measure(rows: int, slices: int, compared: bool) -> tuple[float, int]:
    """CPU seconds of an evaluation, and the memory that it takes in MB."""
    import tensorflow_model_analysis as tfma

    from strategos.components.evaluation import metrics, summary
    from strategos.components.evaluator.tfma import eval_config, result_files

    bound = {"at_least": 0.5, "slices": {"id": {"at_least": 0.2}}}
    names = metrics.names("binary")
    section = {"task": "binary", "metrics": names, "bounds": {"auc": bound}}
    config = tfma.utils.update_eval_config_with_defaults(
        eval_config.build(section, "label"), has_baseline=compared, rubber_stamp=True
    )
    before, started = peak(), time.process_time()
    found = summed(names, rows, slices, compared)
    pieces = found.metrics("candidate", "baseline" if compared else None)
    checks = summary.judge(section["bounds"], pieces)
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


def summed(names: list[str], rows: int, slices: int, compared: bool) -> Any:
    """The sums of generated rows, batch by batch."""
    import numpy as np

    from strategos.components.evaluation.classes.entries import SliceMembership
    from strategos.components.evaluation.sums import Sums

    draw, found = np.random.default_rng(0), Sums(names, "binary")
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        score = draw.beta(1, 3, count).astype(np.float32).astype(np.float64)
        label = (draw.random(count) < score).astype(np.float64)
        values, code = np.unique(draw.integers(0, slices, count), return_inverse=True)
        member = SliceMembership(values.tolist(), np.arange(count), code)
        scores = {"candidate": {"prediction": score}}
        if compared:
            scores["baseline"] = {"prediction": score * 0.9}
        part = Sums(names, "binary")
        part.add(label, scores, {"id": member})
        part.compact()
        found.merge(part)
    return found


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    main()
