"""Promotion and abort of a canary, in a real database; models are judged elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.errors import BadInputError, UserError
from strategos.components.push_targets import reports, targets
from strategos.pipeline.history import attempts, lineage, models
from strategos.pipeline.plan import production
from strategos.pipeline.run.versions import canary, rollback


@pytest.fixture
def trial(house, monkeypatch):
    """The house with canary 40; whether models load is proven by runs of real ones."""
    house.add(40, "canary")
    monkeypatch.setattr(canary.pushes.worker_process, "run", lambda *_, **__: {})
    return house


def promote(house):
    return canary.promote(house.config, house.store, None)[1]


def abort(house):
    return canary.abort(house.config, house.store)


def waiting(house):
    pusher = house.config.pusher
    found = models.canary(house.store, pusher.to, pusher.canary)
    return found and found.version


def state(house):
    """What a user sees: versions with their origin, runs, and what is on trial."""
    listed = models.versions(house.store, house.to)
    live = production.newest(house.store.mlmd, house.to)
    contexts = house.store.mlmd.get_contexts_by_type("pipeline_run")
    return {
        "versions": [(each.run_id, each.promoted_from, each.live) for each in listed],
        "live": (live.candidate, live.model, bool(live.artifact)),
        "runs": {c.name: c.custom_properties["outcome"].string_value for c in contexts},
        "aborted": production.aborted(house.store.mlmd, house.config.pusher.canary),
        "slot": sorted(path.name for path in Path(house.to, "../canary").iterdir()),
        "waiting": waiting(house),
    }


def test_a_canary_is_not_the_model_in_production(trial):
    assert waiting(trial) == 40
    assert production.newest(trial.store.mlmd, trial.to).version == 30
    assert attempts.last_push(trial.store, "flights", trial.to, "any").version == "30"
    assert [each.version for each in models.versions(trial.store, trial.to)] == [
        *(30, 20, 10)
    ]


def test_a_promoted_canary_is_what_the_next_run_compares_with(trial):
    pushed = promote(trial)
    live = production.newest(trial.store.mlmd, trial.to)
    assert (live.version, live.candidate) == (pushed, "key-40")
    weights = production.warm_start(trial.store.mlmd, live, "other", fresh=False)
    assert weights.endswith("canary/40-Model/Format-Weights")
    last = attempts.last_push(trial.store, "flights", trial.to, "any")
    assert (last.version, last.spans) == (str(pushed), ((1, None), (40, None)))
    (first, *_) = models.versions(trial.store, trial.to)
    assert (first.live, first.promoted_from, first.run_id) == (True, 40, "run-40")
    assert state(trial)["slot"] == []
    assert lineage.lineage(trial.store, str(pushed)).run_id == "run-40"
    with pytest.raises(BadInputError, match="no canary waits in .*/canary"):
        promote(trial)


def write_report(house, folder, version):
    reports.write(targets.of(folder), version, f"report of {version}")


def reports_of(house):
    """The page beside each version, in the target and in the slot."""
    folders = house.to, house.config.pusher.canary
    found = [reports.listed(folder) for folder in folders]
    return [{x: Path(path).read_text() for x, path in y.items()} for y in found]


def test_a_report_goes_with_its_model(trial):
    slot = trial.config.pusher.canary
    write_report(trial, slot, 40)
    write_report(trial, trial.to, 20)
    pushed = promote(trial)
    both = {20: "report of 20", pushed: "report of 40"}
    assert reports_of(trial) == [both, {}]
    _, copied = rollback.roll_back(trial.config, trial.store, 20)
    assert reports_of(trial) == [both | {copied: "report of 20"}, {}]
    listed = models.versions(trial.store, trial.to)
    assert [os.path.basename(each.report) for each in listed] == [
        *(f"{copied}.html", f"{pushed}.html", "", "20.html", "")
    ]


def test_a_report_goes_with_an_aborted_canary(trial):
    write_report(trial, trial.config.pusher.canary, 40)
    abort(trial)
    assert reports_of(trial) == [{}, {}]


def test_a_model_becomes_live_where_its_report_cannot_be_copied(trial, capsys):
    write_report(trial, trial.config.pusher.canary, 40)
    Path(trial.to, "reports").write_text("in the way")
    pushed = promote(trial)
    assert models.live(trial.store, trial.to).version == pushed
    said = capsys.readouterr().err
    assert f"{trial.to}/{pushed} is without its report: " in said


def test_an_aborted_canary_counts_as_not_blessed(trial):
    assert abort(trial).version == 40
    seen = state(trial)
    assert seen["waiting"] is None and "40" not in seen["slot"]
    assert seen["runs"]["run-40"] == "not blessed"
    assert seen["runs"]["run-30"] == ""
    assert len(seen["aborted"]) == 1
    assert seen["live"][0] == "key-30"


def test_a_version_that_appeared_meanwhile_is_not_replaced(trial, monkeypatch):
    def roll_back(*_, **__):
        shutil.copytree(f"{trial.to}/20", f"{trial.to}/50")

    monkeypatch.setattr(canary.pushes, "check_that_it_loads", roll_back)
    with pytest.raises(UserError, match="version 50 appeared"):
        promote(trial)
    assert waiting(trial) == 40


class Killed(BaseException):
    pass


_CUTS = {
    promote: ["_record_promotion", "_empty"],
    abort: ["_finish_abort", "_empty"],
}


@pytest.mark.parametrize("work", _CUTS, ids=lambda work: work.__name__)
@pytest.mark.parametrize("recorded", [True, False])
def test_what_is_killed_half_way_is_ended_by_the_next_command(
    trial, monkeypatch, tmp_path, work, recorded
):
    if not recorded:  # the run was killed between its push and the record
        (artifact,) = (
            each
            for each in trial.store.mlmd.get_artifacts_by_type("PushedModel")
            if each.custom_properties["slot"].string_value
        )
        artifact.custom_properties["pushed"].int_value = 0
        artifact.custom_properties["pushed_destination"].string_value = "/elsewhere/1"
        trial.store.mlmd.put_artifacts([artifact])
    backup = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-backup"))

    def killed(*_, **__):
        raise Killed

    states = []
    for cut in [None, *_CUTS[work]]:
        with monkeypatch.context() as patch:
            if cut:
                patch.setattr(canary, cut, killed)
                with pytest.raises(Killed):
                    work(trial)
            else:
                work(trial)
        canary.settle(trial.config, trial.store)
        canary.settle(trial.config, trial.store)
        states.append(state(trial))
        shutil.rmtree(tmp_path)
        shutil.copytree(backup, tmp_path)
        config = mlmd.ConnectionConfig()
        config.sqlite.filename_uri = str(tmp_path / "metadata.sqlite")
        trial.store = models.Store(config)
    assert states[0]["waiting"] is None
    assert states.count(states[0]) == len(states)


def test_a_rollback_ends_a_promotion_first(trial, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(canary, "_record_promotion", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            promote(trial)
    rollback.roll_back(trial.config, trial.store, None)
    assert waiting(trial) is None
    runs = [each.run_id for each in models.versions(trial.store, trial.to)]
    assert runs == ["run-30", "run-40", "run-30", "run-20", "run-10"]
