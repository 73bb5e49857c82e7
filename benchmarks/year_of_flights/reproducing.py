"""Ten models of the year, each made again by `strategos reproduce`.

    python benchmarks/year_of_flights/reproducing.py [--every N] [--folder DIR]

Each month from February on arrives as a span, and a run trains on the month before,
from the weights of the last model. Each of the ten versions is made again. Then three
old versions are removed, and `strategos clean` removes what nothing needs: the first
model and the last one are made again, the last one also with a package of another
version, a line of the code changed, its stored code damaged, and a byte of its data
changed. The exit code is 1 if one of them ends otherwise than it should.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import arrivals
import pyarrow as pa

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
STRATEGOS = Path(sys.executable).with_name("strategos")
_RUNS = 10
_GONE = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--every", type=int, default=10, help="use every n-th flight")
    parser.add_argument("--folder", type=Path, help="new folder; temporary by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        year = Year(folder, arguments.every)
        for month in range(1, _RUNS + 2):
            year.arrive(month)
        print("| what | ended | seconds |\n|---|---|---|")
        held = [_models_again(year), _after_clean(year), _with_changes(year)]
    return 0 if all(held) else 1


class Year:
    """A workload with a run for each month.

    Args:
      folder: A new folder.
      every: Use every n-th flight.
    """

    def __init__(self, folder: Path, every: int):
        cut = arrivals.CUTS["month"]
        self._months = {
            month: table.take(pa.array(range(0, table.num_rows, every)))
            for month, table in cut.spans(
                REPOSITORY / "examples/flights", folder
            ).items()
        }
        self._again = 0
        self.workload = folder / "flights"
        shutil.copytree(HERE / "workload", self.workload)
        shutil.copy(REPOSITORY / "schemas" / "flights.pbtxt", folder)

    @property
    def state(self) -> Path:
        return self.workload / "runs/.strategos"

    @property
    def versions(self) -> list[Path]:
        """The pushed versions, oldest first."""
        return sorted((self.workload / "serving/flights").glob("[0-9]*"))

    def arrive(self, month: int) -> None:
        """A month arrives, and from the second on a run trains on it."""
        arrivals.arrive(self._months[month], self.workload, month)
        if month > 1:
            # Bounds and gates are judged elsewhere; here each month has its model.
            sets = ("evaluator.bounds.auc={at_least: 0.1}", "gates=null")
            words = [word for setting in sets for word in ("--set", setting)]
            done = self.strategos("run", *words)
            if done.returncode:
                raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])

    def reproduce(
        self, what: str, wanted: str, *, expect: str, env: Mapping[str, str] = {}
    ) -> bool:
        """Makes a model again, and prints how that ended.

        Args:
          what: Name of the case.
          wanted: The version or the run.
          expect: A text of the outcome.
          env: Variables besides the environment's.
        """
        self._again += 1
        began = time.monotonic()
        words = ("reproduce", wanted, "--to", f"../again-{self._again}", "--json")
        done = self.strategos(*words, env=env)
        seconds = time.monotonic() - began
        ended = _outcome(done)
        holds = expect in ended
        shown = ended.replace(str(self.workload.parent), "").replace("|", "\\|")
        print(f"| {what} | {'' if holds else 'WRONG: '}{shown} | {seconds:.0f} |")
        sys.stdout.flush()
        return holds

    def strategos(
        self, *words: str, env: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [STRATEGOS, *words],
            cwd=self.workload,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
        )


def _models_again(year: Year) -> bool:
    versions = year.versions
    if len(versions) != _RUNS:
        raise SystemExit(f"{_RUNS} versions are expected, {len(versions)} were pushed")
    return all(
        [
            year.reproduce(f"model {number}", version.name, expect="bit-equal")
            for number, version in enumerate(versions, 1)
        ]
    )


def _after_clean(year: Year) -> bool:
    runs = json.loads(year.strategos("runs", "--json").stdout)
    for version in year.versions[:_GONE]:
        shutil.rmtree(version)
    words = ("--keep", "1", "--older-than", "0s", "--delete")
    done = year.strategos("clean", *words)
    if done.returncode:
        raise SystemExit(done.stderr)
    cases = {
        # Its weights led to the later versions, so `clean` keeps its run.
        "model 1, its version removed, after `clean`": runs[-1]["run_id"],
        "model 10, after `clean`": year.versions[-1].name,
    }
    return all([year.reproduce(*case, expect="bit-equal") for case in cases.items()])


def _with_changes(year: Year) -> bool:
    newest = year.versions[-1].name
    held = []
    with _another_package(year.workload.parent / "packages") as env:
        case = "one package of another version"
        held.append(year.reproduce(case, newest, expect="packages.pytz: ", env=env))
    with _changed(year.workload / "model.py", b"1e-3", b"2e-3"):
        case = "one line of the workload's code changed since"
        held.append(year.reproduce(case, newest, expect="bit-equal"))
    (record,) = (
        path
        for path in year.state.glob("runs/*/made_from.json")
        if path.parent.name == _run_of(year, newest)
    )
    digest = json.loads(record.read_text())["code"]["model.py"]
    stored = year.state / "content" / digest
    here = year.workload / "model.py"
    with _changed(here, b"1e-3", b"2e-3"), _changed(stored, b"1e-3", b"2e-3"):
        case, text = "that line changed in its stored code, too", "model.py: its"
        held.append(year.reproduce(case, newest, expect=text))
    data = sorted(year.workload.glob("data/*/flights.csv"))[-1]
    with _changed(data, b"1", b"2"):
        case, text = "one byte of its data changed", "the data file has changed since"
        held.append(year.reproduce(case, newest, expect=text))
    return all(held)


def _run_of(year: Year, version: str) -> str:
    manifest = year.workload / "serving/flights" / version / "assets.extra"
    return json.loads((manifest / "manifest.json").read_text())["run_id"]


def _outcome(done: subprocess.CompletedProcess[str]) -> str:
    """The outcome of `reproduce` in a line."""
    named = [x.strip() for x in done.stderr.splitlines() if "→" in x]
    if done.returncode == 2 or not done.stdout:
        _, _, message = done.stderr.partition("strategos: ")
        return f"exit code {done.returncode}: {' '.join(message.split())}"
    found: dict[str, Any] = json.loads(done.stdout)
    all_of = f"{found['numbers']:,} numbers in {found['weights']} weights"
    text = f"bit-equal: {all_of}" if found["equal"] else f"not equal: {all_of}"
    return "; ".join([*named, text])


@contextlib.contextmanager
def _changed(path: Path, before: bytes, after: bytes) -> Iterator[None]:
    """Replaces the last `before` of a file while the block runs."""
    content = path.read_bytes()
    head, found, tail = content.rpartition(before)
    if not found:
        raise SystemExit(f"{path}: {before!r} is expected in it")
    path.write_bytes(head + after + tail)
    try:
        yield
    finally:
        path.write_bytes(content)


@contextlib.contextmanager
def _another_package(folder: Path) -> Iterator[dict[str, str]]:
    """Variables by which Python finds pytz in another version than the installed."""
    about = folder / "pytz-2020.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pytz\nVersion: 2020.1\n"
    )
    yield {"PYTHONPATH": str(folder)}
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
