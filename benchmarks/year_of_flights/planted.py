"""Eight planted causes of a worse model, each searched for by `strategos bisect`.

    python benchmarks/year_of_flights/planted.py [--every N] [--folder DIR] [NUMBER ...]

A good run trains on three months. Then April arrives, and changes that do not matter:
of a setting, of the model's code and of the preprocessing. With them comes what is
planted, and a second run. The table has the causes that `bisect` names; the exit code
is 1 if one of them is missing, or something else is named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import arrivals
import pyarrow as pa
import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
STRATEGOS = Path(sys.executable).with_name("strategos")
_APRIL = "data/span-004/flights.csv"
_SETTINGS = {
    "name": "flights",
    "label": "late",
    "data": {"examples": "data/span-{SPAN}/*.csv"},
    "schema": {"file": "../flights.pbtxt"},
    "transform": {"module": "preprocessing"},
    "trainer": {
        **{"module": "model", "batch_size": 256, "epochs": 6, "seed": 1},
        "hyperparameters": {"rate": 0.001},
    },
    "evaluator": {
        **{"task": "binary", "metrics": ["auc", "log_loss"]},
        "bounds": {"auc": {"at_least": 0.01}},
    },
}


@dataclass(frozen=True)
class Planted:
    """What is planted, and what `bisect` has to name.

    Attributes:
      name: What is planted, in words.
      edits: File, text before and text after of each edit.
      causes: Beginnings of the names of the causes.
      flipped: Whether the labels of April are flipped.
    """

    name: str
    edits: Sequence[tuple[str, str, str]] = ()
    causes: Sequence[str] = ()
    flipped: bool = False


_RATE = ("pipeline.yaml", "rate: 0.001", "rate: 0.5")
_SLOW = ("pipeline.yaml", "rate: 0.001", "rate: 0.000001")
_EPOCHS = ("pipeline.yaml", "epochs: 6", "epochs: 1")
_SCALE = ("preprocessing.py", "- usual) / spread", "- usual) * spread")
_LOST = ("preprocessing.py", "[*numbers, *cycles]", "[*numbers[:0], *cycles]")
_DEAD = (
    "model.py",
    'Dense(32, activation="relu")',
    "Dense(32, tf.nn.relu, use_bias=False, kernel_initializer='zeros')",
)
_RATE_KEY, _EPOCHS_KEY = "trainer.hyperparameters.rate", "trainer.epochs"
PLANTED = (
    Planted("a span with flipped labels", causes=[_APRIL], flipped=True),
    Planted("a learning rate 500 times as large", [_RATE], [_RATE_KEY]),
    Planted("one epoch in place of six", [_EPOCHS], [_EPOCHS_KEY]),
    Planted("a bug in preprocessing: `*` for `/`", [_SCALE], ["preprocessing.py"]),
    Planted("a bug in preprocessing: numbers lost", [_LOST], ["preprocessing.py"]),
    Planted("a layer of the model that learns nothing", [_DEAD], ["model.py"]),
    # `_RATE` has 6% of the effect of flipped labels, less than `bisect` counts.
    Planted(
        "flipped labels and a learning rate a thousandth as large",
        [_SLOW],
        [_APRIL, _RATE_KEY],
        flipped=True,
    ),
    Planted(
        "flipped labels and one epoch in place of six",
        [_EPOCHS],
        [_APRIL, _EPOCHS_KEY],
        flipped=True,
    ),
)
_HARMLESS = (
    ("pipeline.yaml", "batch_size: 256", "batch_size: 250"),
    ("preprocessing.py", "(1040.0, 730.0)", "(1040.0, 735.0)"),
    ("model.py", "import tensorflow", "import time  # noqa: F401\n\nimport tensorflow"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=10, help="use every n-th flight")
    parser.add_argument("--folder", type=Path, help="new folder; temporary by default")
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        months = _months(folder, arguments.every)
        print(
            "| planted | named as causes | log_loss | runs | seconds |\n"
            "|---|---|---|---|---|",
            flush=True,
        )
        found = [
            _search(each, folder / f"planted-{number}", months)
            for number, each in enumerate(PLANTED, 1)
            if number in (arguments.numbers or [number])
        ]
    return 0 if all(found) else 1


def _months(folder: Path, every: int) -> dict[int, pa.Table]:
    shutil.copy(REPOSITORY / "schemas" / "flights.pbtxt", folder)
    months = arrivals.CUTS["month"].spans(REPOSITORY / "examples/flights", folder)
    return {
        month: months[month].take(pa.array(range(0, months[month].num_rows, every)))
        for month in range(1, 5)
    }


def _search(planted: Planted, workload: Path, months: Mapping[int, pa.Table]) -> bool:
    """Plants, searches, and prints a line; whether all causes and no others are named.

    Args:
      planted: What is planted.
      workload: A new folder.
      months: The rows of four months.
    """
    shutil.copytree(HERE / "workload", workload)
    (workload / "pipeline.yaml").write_text(yaml.safe_dump(_SETTINGS))
    _edit(workload, "model.py", "1e-3", 'context.hyperparameters["rate"]')
    for month in (1, 2, 3):
        arrivals.arrive(months[month], workload, month)
    good = _run(workload)
    for edit in (*_HARMLESS, *planted.edits):
        _edit(workload, *edit)
    flip = dict(arrivals.BAD)["labels flipped"]
    arrivals.arrive(flip(months[4]) if planted.flipped else months[4], workload, 4)
    bad = _run(workload)
    began = time.monotonic()
    words = ("bisect", good, bad, "--metric", "log_loss", "--to", "found", "--json")
    found = json.loads(_strategos(workload, *words))
    seconds = time.monotonic() - began
    named = [each["name"] for cause in found["causes"] for each in cause["changes"]]
    holds = found["complete"] and _same(named, planted.causes)
    cells = [
        planted.name,
        ("" if holds else "WRONG: ") + ", ".join(f"`{name}`" for name in named),
        f"{found['recorded']['good']:.3f} → {found['recorded']['bad']:.3f}",
        str(found["runs"]),
        f"{seconds:.0f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return holds


def _same(named: Sequence[str], causes: Sequence[str]) -> bool:
    pairs = zip(sorted(named), sorted(causes), strict=False)
    return len(named) == len(causes) and all(x.startswith(y) for x, y in pairs)


def _edit(workload: Path, name: str, before: str, after: str) -> None:
    text = (workload / name).read_text()
    if before not in text:
        raise SystemExit(f"{name}: {before!r} is expected in it")
    (workload / name).write_text(text.replace(before, after))


def _run(workload: Path) -> str:
    """Runs the pipeline; the run's id."""
    _strategos(workload, "run")
    return str(json.loads(_strategos(workload, "runs", "show", "--json"))["run_id"])


def _strategos(workload: Path, *words: str) -> str:
    """Standard output of a command."""
    done = subprocess.run(
        [STRATEGOS, *words], cwd=workload, capture_output=True, text=True
    )
    if not done.stdout or done.returncode not in (0, 1, 3):  # 3: not blessed
        raise SystemExit(f"strategos {' '.join(words)}:\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
