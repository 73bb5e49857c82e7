"""A retraining that is killed at any point, and a model server that watches.

A day's round has two points. `STRATEGOS_KILLS=all` kills at all of them, `all-2`,
`all-3`, … at other moments, and a number repeats a round.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest
from ml_metadata.proto.metadata_store_pb2 import Execution

pytestmark = pytest.mark.faults

ROUND = os.environ.get("STRATEGOS_KILLS") or str(datetime.date.today().toordinal())
POINTS = 50
DECISION, PUSH = "the decision", "the moment of the push"
MANIFEST = "assets.extra/manifest.json"

# TensorFlow Serving's policy: the folder with the highest number, as soon as it exists.
READER = """
import json, pathlib, select, sys
import tensorflow as tf

def files(folder):
    return {str(p): p.stat().st_size for p in folder.rglob("*") if p.is_file()}

serving, seen, problems, ended = pathlib.Path(sys.argv[1]), {}, [], False
while not ended:
    ended = bool(select.select([sys.stdin], [], [], 0.005)[0])
    newest = max((p for p in serving.iterdir() if p.name.isdecimal()),
                 key=lambda p: int(p.name))
    found = files(newest)
    if newest.name not in seen:
        seen[newest.name] = found
        model = tf.saved_model.load(str(newest))
        if not model.signatures["serving_default"].structured_outputs:
            problems.append(newest.name)
    if found != seen[newest.name]:
        problems.append([newest.name, seen[newest.name], found])
print(json.dumps({"versions": list(seen), "problems": problems}))
"""


def points():
    if ROUND.startswith("all"):
        return range(POINTS)
    return [int(ROUND) % POINTS, (int(ROUND) + POINTS // 2) % POINTS]


class Retraining:
    """A workspace with a model in production and a new span, again and again."""

    def __init__(self, workspace):
        self.workspace = workspace
        self._kept = workspace.folder.with_name("kept")
        self.seconds = {}

    def keep(self):
        shutil.copytree(self.workspace.folder, self._kept, symlinks=True)

    def restore(self):
        shutil.rmtree(self.workspace.folder)
        shutil.copytree(self._kept, self.workspace.folder, symlinks=True)

    def tick(self):
        """One check; waits as long as a failed run is not due again."""
        while True:
            words = ("retrain", str(self.workspace.yaml), "--if-due")
            said = self.workspace.strategos(*words).stdout
            if "the next attempt may start in" not in said:
                return said
            time.sleep(0.2)

    def start(self):
        return subprocess.Popen(
            [*self.workspace.warm.cli(), "retrain", str(self.workspace.yaml)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.workspace.environment(),
        )

    def events(self):
        """The events of the last run."""
        runs = self.workspace.folder / "runs" / ".strategos" / "runs"
        file = max(runs.iterdir()) / "events.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def state(self):
        """What must not depend on kills."""
        folder = self.workspace.folder
        names = os.listdir(folder / "serving" / "small")
        live = folder / "serving" / "small" / max(filter(str.isdecimal, names))
        about = json.loads((live / MANIFEST).read_text())
        del about["run_id"], about["model"]
        words = ("retrain", str(self.workspace.yaml), "--dry-run", "--json")
        decision = json.loads(self.workspace.strategos(*words).stdout)
        with contextlib.closing(sqlite3.connect(folder / "runs/metadata.sqlite")) as db:
            states = {
                s for (s,) in db.execute("SELECT last_known_state FROM Execution")
            }
        return {
            "versions": len(names),
            "live": about,
            "weights": [p.read_bytes() for p in sorted(live.glob("variables/*"))],
            "decision": [decision[key] for key in ("due", "spans", "new", "left_out")],
            "running": (Execution.RUNNING,) in states,
        }


@pytest.fixture(scope="module")
def retraining(make_small, tmp_path_factory, write_span):
    small = make_small(tmp_path_factory.mktemp("checkout"))
    text = small.yaml.read_text().replace("epochs: 1", "epochs: 1, warm_start: latest")
    small.yaml.write_text(text + "gates: {}\nschedule: {retry_after: 1s}\n")
    found = Retraining(small)
    found.tick()
    write_span(small.folder, 3)
    found.keep()
    return found


@pytest.fixture(scope="module")
def undisturbed(retraining):
    """The state after a retraining that nothing disturbs."""
    assert "Due: span 3 came" in retraining.tick()
    for event in retraining.events():
        if event["event"] == "node_finished":
            retraining.seconds[event["node"]] = event["seconds"]
    return retraining.state()


def reached(retraining, before, place):
    """Whether the run is at a place."""
    folder = retraining.workspace.folder
    if place == PUSH:
        return retraining.workspace.serving() != before["serving"]
    runs = folder / "runs" / ".strategos" / "runs"
    if place == DECISION or len(list(runs.iterdir())) == before["runs"]:
        return place == DECISION
    started = ("node_started", place)
    return started in [(e["event"], e.get("node")) for e in retraining.events()]


def kill(retraining, run, chance, place):
    """Kills a run, or its process of the nodes, at a random moment of a place."""
    folder = retraining.workspace.folder / "runs" / ".strategos" / "runs"
    before = {"runs": len(list(folder.iterdir()))}
    before["serving"] = retraining.workspace.serving()
    while run.poll() is None and not reached(retraining, before, place):
        time.sleep(0.002)
    time.sleep(chance.uniform(0, retraining.seconds.get(place, 0)))
    victim = run.pid
    if chance.random() < 0.3:
        with contextlib.suppress(ValueError):  # it may not have started
            victim = retraining.workspace.process("executor_process")
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    run.wait()
    retraining.workspace.wait_until_nothing_is_left(60)


@pytest.mark.parametrize("point", points())
def test_killed_retraining_ends_as_one_that_was_not(retraining, undisturbed, point):
    retraining.restore()
    places = [DECISION, *retraining.seconds, PUSH]
    place = places[point % len(places)]
    serving = retraining.workspace.folder / "serving" / "small"
    reader = retraining.workspace.warm.script(READER, str(serving))
    kill(retraining, retraining.start(), random.Random(f"{point} {ROUND}"), place)
    retraining.tick()
    assert retraining.state() == undisturbed, place
    seen = reader.answer()
    assert seen["problems"] == []
    assert seen["versions"][-1] == retraining.workspace.serving()[-1]
