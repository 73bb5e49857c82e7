"""`strategos dev`, as a user has it: a process that runs after each change."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import psutil
import pytest


class Dev:
    """The command, started cold."""

    def __init__(self, small, tmp_path, *words):
        self._log = tmp_path / "dev.txt"
        with self._log.open("w") as file:
            self.process = subprocess.Popen(
                small.command("dev", str(small.yaml), *words),
                stdout=file,
                stderr=file,
                env=small.cold_environment(),
            )
        self._small, self._read = small, 0

    def next_answer(self) -> str:
        """What it prints until it waits for a change."""
        end = "waiting for a change\n"
        self._small.wait_for(lambda: end in self._log.read_text()[self._read :], 300)
        text = self._log.read_text()
        start, self._read = self._read, text.index(end, self._read) + len(end)
        return text[start : self._read]

    def maps(self) -> str:
        """What the processes that wait beside it have loaded."""
        waiting = psutil.Process(self.process.pid).children()
        return "".join(Path(f"/proc/{x.pid}/maps").read_text() for x in waiting)

    def memory(self) -> float:
        """Megabytes that it and the processes that wait beside it take."""
        waiting = psutil.Process(self.process.pid).children(recursive=True)
        found = [psutil.Process(self.process.pid), *waiting]
        return sum(each.memory_info().rss for each in found) / 1e6


@pytest.fixture
def start(make_small, tmp_path):
    started = []

    def start(*words):
        small = make_small(tmp_path / "checkout")
        started.append(Dev(small, tmp_path, *words))
        return small, started[-1]

    yield start
    for dev in started:
        dev.process.kill()


@pytest.mark.long
def test_each_change_is_run_an_error_survived_and_nothing_pushed(start):
    small, dev = start()
    assert "verdict" in dev.next_answer()
    assert "libtensorflow_cc" in dev.maps()  # else each run imports it
    model = small.folder / "model.py"
    source = model.read_text()
    model.write_text(f"{source}\n# changed\n")
    second = dev.next_answer()
    assert "changed: " in second and "model.py" in second
    assert "last run" in second and "same" in second
    model.write_text(f"{source}\ndef broken(:\n")
    assert "is not valid Python" in dev.next_answer()
    model.write_text(source.replace("def build_model(context):", _RAISES, 1))
    assert "unhappy" in dev.next_answer()
    model.write_text(source)
    assert "verdict" in dev.next_answer()
    outcomes = [run["outcome"] for run in _runs(small)]
    assert outcomes == ["blessed", "failed", "blessed", "blessed"]
    assert not (small.folder / "serving").exists()
    assert small.end(dev.process, signal.SIGINT) == 0
    small.wait_until_nothing_is_left()


_RAISES = "def build_model(context):\n    raise ValueError('unhappy')\n"


@pytest.mark.long
def test_metrics_of_tfma_and_of_plug_ins_are_tried_as_in_a_run(start):
    metrics = "evaluator.metrics=[auc, rarity, {class: SpecificityAtSensitivity, "
    metrics += "config: {sensitivity: 0.5}}]"
    small, dev = start("--set", metrics, "--set", "plugins=[additions]")
    assert "additions" in dev.next_answer()  # is missing
    (small.folder / "additions.py").write_text(_PLUGIN)
    small.yaml.write_text(f"{small.yaml.read_text()}\n")
    answer = dev.next_answer()
    assert "rarity" in answer and "verdict" in answer


_PLUGIN = """
import numpy as np
from strategos import Metric

class Rarity(Metric):
    tasks, description, direction = ("binary",), "share of negatives", "lower"

    def sums(self, batch):
        import pandas as pd

        negatives = (1 - pd.Series(batch.label)).to_numpy()
        return np.stack([batch.total(negatives), batch.total(np.ones_like(negatives))])

    def finish(self, sums):
        return sums[0] / sums[1]

PLUGINS = {"strategos.metrics": {"rarity": Rarity}}
"""


@pytest.mark.long
def test_a_sample_has_a_root_of_its_own(start):
    small, dev = start("--rows", "100")
    assert "verdict" in dev.next_answer()
    assert not (small.folder / "runs" / "metadata.sqlite").exists()
    samples = small.folder / "runs" / ".strategos" / "samples" / "100"
    files = sorted((samples / "data").rglob("*.csv"))
    whole = sorted((small.folder / "data").rglob("*.csv"))
    for copy, original in zip(files, whole, strict=True):
        lines = copy.read_text().splitlines()
        assert lines == original.read_text().splitlines()[:51]
    assert small.end(dev.process, signal.SIGTERM) == 0


@pytest.mark.faults
def test_reloads_leave_its_memory_flat(start):
    small, dev = start("--set", "trainer.epochs=1")
    model, taken = small.folder / "model.py", []
    source = model.read_text()
    for number in range(14):
        dev.next_answer()
        taken.append(dev.memory())
        model.write_text(f"{source}\n# {number}\n")
    assert max(taken[-4:]) < max(taken[4:9]) + 10


def _runs(small) -> list[dict]:
    listed = small.strategos("runs", str(small.yaml), "--json").stdout
    return json.loads(listed)
