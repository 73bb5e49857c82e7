"""A root that an earlier version left behind: what users have when they upgrade.

`fecbd19.tar.xz` was made by commit fecbd19 in /srv/bought: a model of span 1, one of
spans 1 and 2, a rollback to the first, a canary of spans 1 to 3, and a training of 200
epochs that was interrupted at step 412.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

_ARCHIVE = Path(__file__).parents[2] / "workloads" / "earlier" / "fecbd19.tar.xz"
_MADE_IN = "/srv/bought"
_PLACES = (
    ("Artifact", "uri"),
    ("ArtifactProperty", "string_value"),
    ("ExecutionProperty", "string_value"),
    ("ContextProperty", "string_value"),
)
_LIVE, _OF_TWO_SPANS, _CANARY = "1795712550", "1795712546", "1795712562"
_INTERRUPTED = "dfb93037178c8023"
_INTERRUPTED = "dfb93037178c8023"
_TRAINING = (
    *("--to", "Trainer", "--set", "trainer.seed=5"),
    *("--set", "trainer.warm_start=null", "--set", "trainer.epochs=105"),
)


@pytest.fixture(scope="module")
def earlier(make_workspace, tmp_path_factory):
    """The workload with its root, as if both had been in the new place all along."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(_ARCHIVE) as archive:
        archive.extractall(folder)
    folder /= "bought"
    for path in list(folder.rglob("*")):
        if path.is_symlink():  # what was pushed
            target = str(path.readlink()).replace(_MADE_IN, str(folder))
            path.unlink()
            path.symlink_to(target)
            continue
        path.touch()  # checkpoints are kept for a week
        if path.suffix in (".json", ".jsonl", ".txt"):
            path.write_text(path.read_text().replace(_MADE_IN, str(folder)))
    with _database(folder) as database:
        for table, column in _PLACES:
            change = f"{column} = replace({column}, '{_MADE_IN}', '{folder}')"
            database.execute(f"UPDATE {table} SET {change}")
        database.commit()
    return make_workspace(folder, ())


def _database(folder):
    return contextlib.closing(sqlite3.connect(folder / "runs" / "metadata.sqlite"))


def versions(workspace):
    """What `models` says of each pushed version, the canary first."""
    shown = workspace.strategos("models", str(workspace.yaml)).stdout
    return {line.split()[0]: line for line in shown.splitlines()[1:]}


def test_its_versions_are_listed(earlier):
    listed = versions(earlier)
    assert list(listed)[:3] == [_CANARY, _LIVE, _OF_TWO_SPANS]
    assert "canary" in listed[_CANARY] and "live" in listed[_LIVE]
    assert "rolled back to" in listed[_LIVE]
    assert {"1..2", "0.8786", "0.8813"} <= set(listed[_OF_TWO_SPANS].split())


def test_the_lineage_of_its_models_is_whole(earlier):
    serving = earlier.folder / "serving" / _OF_TWO_SPANS
    shown = earlier.strategos(
        "lineage", str(serving), str(earlier.yaml), "--json"
    ).stdout
    steps = {step["node"]: step for step in json.loads(shown)["steps"]}
    assert [n for n, _ in steps["ExampleGen"]["parameters"]["spans"]] == [1, 2]
    assert {"Pusher", "Trainer", "Transform", "Evaluator"} <= steps.keys()


def test_its_interrupted_training_is_named_and_not_resumed(earlier):
    """Another version trains with other code: the key of its checkpoints differs."""
    training = earlier.run(*_TRAINING).stderr
    assert "interrupted at step 412 had other data, settings or code" in training
    assert f"checkpoints/{_INTERRUPTED}" in training


def test_its_checkpoint_continues_to_the_losses_of_an_undisturbed_training(earlier):
    """As if the key had not changed: what the test before trained is the oracle."""
    with _database(earlier.folder) as database:
        query = "SELECT string_value FROM ContextProperty WHERE name = 'keys'"
        keys = [json.loads(text) for (text,) in database.execute(query)]
    trainer = earlier.folder / "runs" / "bought" / "Trainer"
    checkpoints = trainer / "checkpoints"
    shutil.move(checkpoints / _INTERRUPTED, checkpoints / keys[-1]["checkpoint"])
    training = earlier.run(*_TRAINING, "--no-cache").stderr
    assert "resuming at step 412" in training
    models = sorted((trainer / "model").iterdir(), key=lambda each: int(each.name))
    facts = [json.loads((model / "trainer.json").read_text()) for model in models[-2:]]
    assert len(facts[0]["history"]["loss"]) == 105
    for metric, by_epoch in facts[0]["history"].items():
        assert facts[1]["history"][metric] == pytest.approx(by_epoch, abs=1e-5), metric


def test_its_canary_is_judged_and_promoted(earlier):
    shutil.move(earlier.folder / "later" / "span-4", earlier.folder / "data")
    promoted = earlier.strategos("canary", "promote", str(earlier.yaml)).stdout
    assert f"canary {_CANARY} (on span 4, bounds held: 2)" in promoted


def test_retraining_goes_on_from_its_model(earlier):
    """Its weights have no vocabularies: rows that cannot be assigned start fresh."""
    arguments = ("--if-due", "--set", "pusher.canary=null")
    done = earlier.strategos("retrain", str(earlier.yaml), *arguments)
    assert done.stdout.startswith("Due: span 4 came after model ")
    assert "starts fresh: the earlier model was written by a version" in done.stdout
    assert "\u2713 bought  blessed" in done.stdout


def test_its_model_is_rolled_back_to(earlier):
    before = list(versions(earlier))
    earlier.strategos("rollback", str(earlier.yaml))
    live, *others = versions(earlier)
    assert live not in before and others[0] == before[0]
