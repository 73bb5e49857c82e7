"""Versions of a model and rollbacks, in a real database with the pushes of a test."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from strategos.components.errors import BadInputError, UserError
from strategos.pipeline import cli
from strategos.pipeline.history import attempts, lineage, models
from strategos.pipeline.plan import production
from strategos.pipeline.run.versions import pushes, rollback
from strategos.pipeline.view import lineage as lineage_view


@pytest.fixture
def roll_back(house, monkeypatch):
    """Rolls back; whether models load is proven by runs of real ones."""
    monkeypatch.setattr(pushes.worker_process, "run", lambda *_, **__: {})
    return lambda wanted=None: rollback.roll_back(house.config, house.store, wanted)[1]


def content(house, version):
    return open(f"{house.to}/{version}/saved_model.pb").read()


def test_versions_are_listed_with_run_spans_and_metrics(house):
    shutil.copytree(f"{house.to}/30", f"{house.to}/40")
    (Path(house.to) / "50").mkdir()  # not complete
    about = Path(house.to, "20", "assets.extra", "manifest.json")
    about.parent.mkdir()
    given = {"run_id": "elsewhere", "spans": [[7, 2]], "metrics": {"auc": 0.9}}
    about.write_text(json.dumps(given | {"strategy": "mirrored"}))
    found = models.versions(house.store, house.to)
    assert [each.version for each in found] == [50, 40, 30, 20, 10]
    assert [each.version for each in found if each.live] == [40]
    unknown, last = found[1], found[2]
    assert (unknown.run_id, unknown.pushed_at, unknown.artifact) == (None, None, 0)
    assert (last.run_id, last.metrics) == ("run-30", {"auc": 0.3})
    assert last.spans == ((1, None), (30, None))
    assert (found[3].run_id, found[3].spans) == ("elsewhere", ((7, 2),))
    assert (found[3].metrics, found[3].strategy) == ({"auc": 0.9}, "mirrored")
    about.write_text("{")  # cut off by a hand: ML Metadata knows it still
    assert models.versions(house.store, house.to)[3].run_id == "run-20"


def test_the_model_before_the_live_one_becomes_live(house, roll_back):
    pushed = roll_back()
    assert content(house, pushed) == "model of 20"
    live = models.versions(house.store, house.to)[0]
    assert (live.version, live.live, live.rollback_of) == (pushed, True, 20)
    assert (live.run_id, live.metrics) == ("run-20", {"auc": 0.2})
    assert live.spans == ((1, None), (20, None))
    again = roll_back()
    assert content(house, again) == "model of 10"
    with pytest.raises(BadInputError, match="no version before the one that is live"):
        roll_back()


@pytest.fixture
def from_elsewhere(workload):
    """A workload without a root, whose three versions a cluster has pushed."""
    for number in (10, 20, 30):
        folder = workload.parent / "serving" / str(number)
        about = folder / "assets.extra" / "manifest.json"
        about.parent.mkdir(parents=True)
        (folder / "saved_model.pb").write_text(f"model of {number}")
        facts = {"run_id": f"run-{number}", "fingerprint": f"key-{number}", "model": 0}
        facts |= {"spans": [[number, None]], "metrics": {"auc": number / 100}}
        who = {"root": "a cluster's" if number > 10 else "an earlier one"}
        about.write_text(json.dumps(facts | {"pushed_by": who}))
    return workload


def test_versions_are_known_by_their_manifests_where_no_root_is(
    from_elsewhere, monkeypatch, capsys
):
    monkeypatch.setattr(pushes.worker_process, "run", lambda *_, **__: {})

    def listed():
        assert cli.main(["models", str(from_elsewhere), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        return [(each["version"], each["rollback_of"]) for each in found]

    assert listed() == [(30, None), (20, None), (10, None)]
    assert cli.main(["models", str(from_elsewhere)]) == 0
    assert "run-30" in capsys.readouterr().out
    copies = []
    for origin in (20, 10):
        assert cli.main(["rollback", str(from_elsewhere)]) == 0
        assert f"a copy of {origin}\n" in capsys.readouterr().out
        copies.insert(0, (listed()[0][0], origin))
    assert listed() == [*copies, (30, None), (20, None), (10, None)]
    newest = from_elsewhere.parent / "serving" / str(copies[0][0])
    about = json.loads((newest / "assets.extra" / "manifest.json").read_text())
    assert about["pushed_by"] == {"root": "a cluster's"}
    assert not (from_elsewhere.parent / "runs").exists()
    shutil.rmtree(from_elsewhere.parent / "serving")
    assert cli.main(["models", str(from_elsewhere)]) == 1
    assert "no runs yet under" in capsys.readouterr().err


def test_the_next_run_compares_with_the_model_that_is_live(house, roll_back):
    pushed = roll_back(10)
    live = production.newest(house.store.mlmd, house.to)
    assert (live.version, live.candidate) == (pushed, "key-10")
    weights = production.warm_start(house.store.mlmd, live, "other", fresh=False)
    assert weights == f"{house.to}/10-Model/Format-Weights"
    last = attempts.last_push(house.store, "flights", house.to, "any")
    assert (last.version, last.spans) == (str(pushed), ((1, None), (10, None)))


def test_a_push_to_another_target_is_not_the_last_push(house, roll_back):
    staging = Path(house.to).parent / "staging"
    assert attempts.last_push(house.store, "flights", str(staging), "any") is None
    assert attempts.last_push(house.store, "flights", house.to, "any").version == "30"
    pushed = roll_back()
    assert attempts.last_push(house.store, "flights", house.to, "any").version == str(
        pushed
    )
    Path(house.to).rename(staging)  # the folder was moved: there is no other one
    assert attempts.last_push(house.store, "flights", str(staging), "any") is not None


def test_a_rollback_to_a_version_without_a_record_is_known_by_its_manifest(
    house, roll_back
):
    """A run was killed between the push and its record; or elsewhere pushed it."""
    ids = {m.uri: m.id for m in house.store.mlmd.get_artifacts_by_type("Model")}
    model = ids[f"{house.to}/10-Model"]
    for number, run in ((11, "run-10"), (12, "elsewhere")):
        folder = Path(shutil.copytree(f"{house.to}/10", f"{house.to}/{number}"))
        about = {"run_id": run, "fingerprint": "key-11", "model": model}
        (folder / "assets.extra").mkdir()
        (folder / "assets.extra" / "manifest.json").write_text(json.dumps(about))
    roll_back(11)
    live = production.newest(house.store.mlmd, house.to)
    assert (live.candidate, live.model) == ("key-11", model)
    weights = production.warm_start(house.store.mlmd, live, "other", fresh=False)
    assert weights == f"{house.to}/10-Model/Format-Weights"
    roll_back(12)
    live = production.newest(house.store.mlmd, house.to)
    assert (live.candidate, live.model) == ("", 0)
    assert production.baseline(live, "other", fresh=False) == live.path


def test_lineage_of_a_rollback_names_the_run_of_its_model(house, roll_back):
    pushed = roll_back(10)
    found = lineage.lineage(house.store, str(pushed))
    assert (found.run_id, found.steps[-1].run_id) == ("run-10", "")
    console = Console(file=io.StringIO(), width=100)
    lineage_view.show(found, console)
    shown = console.file.getvalue()
    assert "run run-10" in shown and "live again  version 10" in shown
    assert "reused from" not in shown and "rollback_of" not in shown


def test_a_withdrawn_model_can_come_back(house, roll_back):
    roll_back()
    assert content(house, roll_back(30)) == "model of 30"
    assert models.versions(house.store, house.to)[0].rollback_of == 30


@pytest.mark.parametrize(
    ("wanted", "told"), [(30, "is live already"), (31, "has no such version")]
)
def test_a_version_that_cannot_become_live_is_told(house, roll_back, wanted, told):
    with pytest.raises(BadInputError, match=told) as caught:
        roll_back(wanted)
    assert "Allowed: 20, 10" in str(caught.value)


def test_a_version_that_does_not_load_stays_where_it_is(house, warm_processes):
    with pytest.raises(UserError, match="version 20 does not become live: .* does not"):
        rollback.roll_back(house.config, house.store, None)
    assert [each.version for each in models.versions(house.store, house.to)] == [
        *(30, 20, 10)
    ]
