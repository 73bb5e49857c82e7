"""ExampleGen's CPU seconds by number of files, beside pyarrow's reader alone.

    python benchmarks/small_files.py --files 1000 10000

Files have 30 rows of seven columns. `alone` is ExampleGen reading file by file, as it
does with `data.on_bad_row: quarantine`; `pyarrow` reads each file and does nothing with
its rows; `one file` is ExampleGen on the same rows in one file. Imports of TensorFlow
and TFX are left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from tfx.types import standard_artifacts

from strategos.components.data_files.sources import Reading
from strategos.components.example_gen import executor

HEADER = "a,b,c,d,e,town,clicked\n"
READ = """
import pathlib, sys
from pyarrow import csv
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    csv.read_csv(path, read_options=csv.ReadOptions(use_threads=False))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rows", type=int, default=30)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    alone = Reading(on_bad_row="quarantine").to_json()
    print("files      together     alone   pyarrow  one file")
    for count in arguments.files:
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            write(root, count, arguments.rows)
            many, one = str(root / "many" / "*.csv"), str(root / "one.csv")
            generate(one, root / "warm")
            seconds = [
                cpu(generate, many, root / "together"),
                cpu(generate, many, root / "alone", alone),
                cpu(read, root / "many"),
                cpu(generate, one, root / "single"),
            ]
        print(f"{count:<8,}", *(f"{each:9.2f}" for each in seconds))


def write(root: Path, files: int, rows: int) -> None:
    """Writes the same random rows as many files and as one."""
    draw = random.Random(1)
    (root / "many").mkdir()
    with open(root / "one.csv", "w") as whole:
        whole.write(HEADER)
        for number in range(files):
            text = "".join(
                f"{draw.random():.4f},{draw.randrange(100)},{draw.gauss(0, 1):.3f},"
                f"{draw.randrange(10)},{draw.random() * 100:.2f},"
                f"{draw.choice(['Bern', 'Basel', 'Zug'])},{draw.randrange(2)}\n"
                for _ in range(rows)
            )
            whole.write(text)
            (root / "many" / f"{number:06}.csv").write_text(HEADER + text)


def generate(pattern: str, uri: Path, reading: str = "") -> None:
    """Runs the executor of ExampleGen."""
    examples = standard_artifacts.Examples()
    examples.uri = str(uri)
    uri.mkdir()
    split = {"by": "ratio", "keys": [], "train": 8, "eval": 2}
    empty = ("fingerprint", "schema_file", "schema_fingerprint", "label", "stack")
    properties = dict.fromkeys(empty, "") | {
        "pattern": pattern,
        "spans": "[]",
        "split": json.dumps(split),
        "null_values": "[]",
        "unlabelled": "keep",
        "reading": reading,
    }
    executor.Executor().Do({}, {"examples": [examples]}, properties)


def read(folder: Path) -> None:
    """Reads each file by pyarrow, in one thread of a process that does nothing else."""
    subprocess.run([sys.executable, "-c", READ, str(folder)], check=True)


def cpu(work, *arguments) -> float:
    """CPU seconds of this process and its children."""
    before = os.times()
    work(*arguments)
    return sum(os.times()[:4]) - sum(before[:4])


if __name__ == "__main__":
    main()
