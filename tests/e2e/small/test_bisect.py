"""`strategos bisect` finds what was planted between a run and a worse one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess

import pytest

pytestmark = pytest.mark.long

MODEL = """
import tensorflow as tf


def build_model(context):
    x = tf.keras.Input((1,), name="x")
    model = tf.keras.Model([x], tf.keras.layers.Dense(1, "sigmoid")(x))
    rate = context.hyperparameters["rate"]
    model.compile(tf.keras.optimizers.SGD(rate), "binary_crossentropy")
    return model
"""
PREPROCESSING = """
import tensorflow_transform as tft

SCALE = 1.0


def preprocessing_fn(inputs):
    x = tft.scale_to_z_score(inputs["x"])
    return {"x": scaled(x), "late": inputs["late"]}


def scaled(x):
    return SCALE * x
"""
PIPELINE = """
name: small
label: late
data: {examples: "data/span-{SPAN}/*.csv"}
schema: {file: ../schema.pbtxt}
transform: {module: preprocessing}
trainer: {module: model, batch_size: 64, epochs: 20, hyperparameters: {rate: 0.2}}
evaluator: {task: binary, metrics: [auc, log_loss], bounds: {auc: {at_least: 0.01}}}
"""
SPAN = "data/span-3/rows.csv"
RATE = "trainer.hyperparameters.rate"


def edited(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def write_span(workspace, span, flipped=False):
    draw = random.Random(span)
    values = [draw.randrange(101) for _ in range(400)]
    rows = [f"{x},{int((x + draw.gauss(0, 25) > 50) != flipped)}" for x in values]
    file = workspace.folder / f"data/span-{span}/rows.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["x,late", *rows]) + "\n")


def flip_labels(workspace):
    write_span(workspace, 3, flipped=True)


def lower_rate(workspace):
    edited(workspace.yaml, "rate: 0.2", "rate: 0.0002")


def break_code(workspace):
    """A bug in one place of a file whose other place is changed, too."""
    edited(workspace.folder / "preprocessing.py", "SCALE * x", "0.01 * SCALE * x")


def change_what_does_not_matter(workspace):
    edited(workspace.yaml, "batch_size: 64", "batch_size: 60")
    edited(workspace.folder / "model.py", "import ten", "import time\nimport ten")
    edited(workspace.folder / "preprocessing.py", "SCALE = 1.0", "SCALE = 1.01")


@pytest.fixture
def workspace(make_small, tmp_path):
    """A run of a good model, and all of the files that it was made from."""
    made = make_small(tmp_path)
    shutil.rmtree(made.folder / "data")
    made.yaml.write_text(PIPELINE)
    (made.folder / "model.py").write_text(MODEL)
    (made.folder / "preprocessing.py").write_text(PREPROCESSING)
    for span in (1, 2):
        write_span(made, span)
    made.run()
    return made


def run_with(workspace, *plants):
    """Runs again with changes; the ids of both runs."""
    good = workspace.last_run()["run_id"]
    change_what_does_not_matter(workspace)
    for plant in plants:
        plant(workspace)
    workspace.run()
    return good, workspace.last_run()["run_id"]


def bisect(workspace, *words, expect=0):
    to = ("--to", str(workspace.folder / "found"), "--metric", "log_loss")
    words = ("bisect", *words, str(workspace.yaml), *to, "--json")
    return workspace.strategos(*words, expect=expect)


def named(found):
    return [[x["name"] for x in cause["changes"]] for cause in found["causes"]]


@pytest.mark.parametrize(
    ("plants", "names"),
    [
        ([break_code], ["preprocessing.py line 13"]),
        ([flip_labels, lower_rate], [SPAN, RATE]),
    ],
    ids=["code", "two"],
)
def test_planted_causes_are_found_and_nothing_else(workspace, plants, names):
    runs = run_with(workspace, *plants)
    root = workspace.folder / "runs"
    before = sorted(root.rglob("*"))
    found = json.loads(bisect(workspace, *runs).stdout)
    assert named(found) == [[name] for name in names]
    assert found["complete"] and found["runs"] <= 20
    recorded = [workspace.last_run(run)["metrics"]["log_loss"] for run in runs]
    assert found["recorded"] == dict(zip(("good", "bad"), recorded, strict=True))
    assert found["again"] == found["recorded"]  # bit-equal
    assert abs(found["rest"] - recorded[0]) < 0.2 * (recorded[1] - recorded[0])
    others = {each["name"] for each in found["others"]}
    assert {"trainer.batch_size", "model.py after line 1"} <= others
    assert sorted(root.rglob("*")) == before
    assert not (workspace.folder / "found/workload/serving").exists()


def test_it_goes_on_after_a_kill_and_after_all_runs_are_used(workspace):
    runs = run_with(workspace, lower_rate)
    reject(workspace, *runs)
    folder = workspace.folder / "found"
    words = ("bisect", *runs, str(workspace.yaml), "--to", str(folder))
    command = [*workspace.warm.cli(), *words]
    process = subprocess.Popen(command, env=workspace.environment())
    tried = folder / "bisect.json"
    workspace.wait_for(
        lambda: tried.exists() and len(json.loads(tried.read_text())["tried"]) == 1, 300
    )
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    workspace.wait_until_nothing_is_left()
    done = bisect(workspace, *runs, "--runs", "1", expect=1)
    assert "GOOD again" not in done.stderr
    short = json.loads(done.stdout)
    assert short["causes"] == [] and not short["complete"] and short["runs"] == 1
    assert RATE in [each["name"] for each in short["suspects"]]
    found = json.loads(bisect(workspace, *runs).stdout)
    assert named(found) == [[RATE]]
    again = bisect(workspace, *runs)
    assert json.loads(again.stdout) == {**found, "runs": 0}


def reject(workspace, good, bad):
    """What cannot be bisected is rejected by name, before anything runs."""
    done = bisect(workspace, bad, good, expect=2)
    assert f"run {bad} is not better than run {good}: log_loss" in done.stderr
    assert "is compared with itself" in bisect(workspace, bad, bad, expect=2).stderr
    words = ("bisect", good, bad, str(workspace.yaml))
    done = workspace.strategos(*words, "--metric", "acu", expect=2)
    assert "--metric: received acu" in done.stderr and "auc, log_loss" in done.stderr
    done = workspace.strategos(*words, "--to", str(workspace.folder), expect=2)
    assert "exists already, and is no folder of `strategos bisect" in done.stderr
    with gone(workspace.folder / "data/span-2/rows.csv") as data:
        done = bisect(workspace, good, bad, expect=2)
    assert f"{data}: the data file is gone" in done.stderr
    with gone(workspace.folder / f"runs/.strategos/runs/{good}/made_from.json"):
        done = bisect(workspace, good, bad, expect=1)
    assert f"run {good}: no record of its settings and code" in done.stderr
    assert not (workspace.folder / "found").exists()


@contextlib.contextmanager
def gone(path):
    aside = path.rename(path.with_name("aside"))
    try:
        yield path
    finally:
        aside.rename(path)
