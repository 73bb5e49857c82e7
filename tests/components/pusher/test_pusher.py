from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from tensorflow.core.protobuf import saved_model_pb2
from tfx.components.pusher import executor as tfx_pusher
from tfx.dsl.components.base.base_executor import BaseExecutor
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.utils import proto_utils

from strategos.components.errors import UserError
from strategos.components.push_targets import targets
from strategos.components.pusher import (
    ABORTED_VARIABLE,
    NEWEST_VARIABLE,
    WEIGHTS_VARIABLE,
)
from strategos.components.pusher.executor import Executor, all_bless, mark

SIGNED = saved_model_pb2.SavedModel()
_SIGNATURES = SIGNED.meta_graphs.add().signature_def
_SIGNATURES["serving_default"].inputs["rows"].dtype = 7


def versions(serving):
    return targets.of(str(serving)).versions()


def about_version(serving, version):
    return targets.of(str(serving)).manifest(version)


def execute(
    model,
    serving,
    uri,
    blessed=True,
    keep=3,
    number=7,
    run="run-1",
    live=None,
    started_from="none",
):
    """Runs the executor as the launcher does, after creating the artifact's folder."""
    (model / "saved_model.pb").write_bytes(SIGNED.SerializeToString())
    candidate = standard_artifacts.Model()
    candidate.uri, candidate.id = str(model.parent), number
    candidate.set_string_custom_property("strategy", "one_device")
    candidate.set_string_custom_property("warm_start", started_from)
    examples = standard_artifacts.Examples()
    examples.set_string_custom_property("spans", "[[3, null]]")
    evaluation = standard_artifacts.ModelEvaluation()
    evaluation.set_float_custom_property("auc", 0.75)
    evaluation.set_int_custom_property("examples", 9)
    blessing = standard_artifacts.ModelBlessing()
    blessing.set_int_custom_property("blessed", int(blessed))
    pushed = standard_artifacts.PushedModel()
    pushed.uri = str(uri)
    Path(uri).mkdir(parents=True)
    destination = pusher_pb2.PushDestination(
        filesystem=pusher_pb2.PushDestination.Filesystem(base_directory=str(serving))
    )
    properties = {
        "push_destination": proto_utils.proto_to_json(destination),
        "keep": keep,
        "candidate": "abc",
        "baseline": "/serving/1",
        "custom_config": json.dumps({"live": str(live)}) if live else None,
    }
    inputs = {
        "model": [candidate],
        "model_blessing": [blessing],
        "examples": [examples],
        "evaluation": [evaluation],
    }
    context = BaseExecutor.Context(pipeline_run_id=run)
    Executor(context).Do(inputs, {"pushed_model": [pushed]}, properties)
    return pushed


ANSWERS = (None, 0, 1)


@pytest.mark.parametrize(("by_model", "by_infra"), itertools.product(ANSWERS, ANSWERS))
def test_blessings_are_read_as_by_tfx(by_model, by_infra):
    inputs = {"model": [standard_artifacts.Model()]}
    kinds = {
        "model_blessing": (standard_artifacts.ModelBlessing, by_model),
        "infra_blessing": (standard_artifacts.InfraBlessing, by_infra),
    }
    for name, (kind, answer) in kinds.items():
        if answer is not None:
            inputs[name] = [kind()]
            inputs[name][0].set_int_custom_property("blessed", answer)
    assert all_bless(inputs) == tfx_pusher.Executor().CheckBlessing(inputs)


def test_pushed_models_have_the_properties_of_tfx():
    ours, theirs = standard_artifacts.PushedModel(), standard_artifacts.PushedModel()
    tfx = tfx_pusher.Executor()
    mark(ours)
    tfx._MarkNotPushed(theirs)
    assert ours.mlmd_artifact == theirs.mlmd_artifact
    mark(ours, "/serving/7", 7)
    tfx._MarkPushed(theirs, "/serving/7", "7")
    assert ours.mlmd_artifact == theirs.mlmd_artifact


def test_a_manifest_says_who_pushed(model, serving, tmp_path, monkeypatch):
    execute(model, serving, tmp_path / "0", number=1)
    who = {"root": "5f", "pipeline": "flights", "place": "host:/runs"}
    monkeypatch.setenv("STRATEGOS_PUSHED_BY", json.dumps(who))
    execute(model, serving, tmp_path / "1", number=2)
    found = [about_version(serving, each) for each in versions(serving)]
    assert [about.get("pushed_by") for about in found] == [None, who]


def test_versions_of_a_cluster_contain_their_weights(
    model, serving, tmp_path, monkeypatch
):
    monkeypatch.setenv(WEIGHTS_VARIABLE, "1")
    execute(model, serving, tmp_path / "0", number=1)  # a model without weights
    assert "generation" not in about_version(serving, versions(serving)[-1])
    weights = model.parent / "Format-Weights" / "weights.json"
    weights.parent.mkdir()
    before = "none"
    for generation in (1, 2, 3):
        weights.write_text(f"weights {generation}")
        uri = tmp_path / str(generation)
        execute(model, serving, uri, number=1 + generation, started_from=before)
        newest = versions(serving)[-1]
        about = about_version(serving, newest)
        assert (about["warm_start"], about["generation"]) == (before, generation)
        before = f"{serving}/{newest}/assets.extra/weights"
        assert Path(before, "weights.json").read_text() == f"weights {generation}"
    monkeypatch.delenv(WEIGHTS_VARIABLE)
    execute(model, serving, tmp_path / "here", number=9)
    newest = serving / str(versions(serving)[-1])
    assert not (newest / "assets.extra" / "weights").exists()


def test_artifact_is_a_link_and_records_what_was_pushed(model, serving, tmp_path):
    pushed = execute(model, serving, tmp_path / "runs" / "pushed_model" / "7")
    (version,) = versions(serving)
    assert Path(pushed.uri).is_symlink()
    assert Path(pushed.uri).resolve() == (serving / str(version)).resolve()
    assert pushed.get_int_custom_property("pushed") == 1
    properties = {
        name: pushed.get_string_custom_property(name)
        for name in ("pushed_destination", "pushed_version", "candidate", "baseline")
    }
    assert properties == {
        "pushed_destination": str(serving / str(version)),
        "pushed_version": str(version),
        "candidate": "abc",
        "baseline": "/serving/1",
    }


def test_a_version_says_what_it_is_without_ml_metadata(model, serving, tmp_path):
    execute(model, serving, tmp_path / "pushed")
    (version,) = versions(serving)
    about = about_version(serving, version)
    hashed = about.pop("signatures")
    assert about == {
        "run_id": "run-1",
        "spans": [[3, None]],
        "metrics": {"auc": 0.75},
        "strategy": "one_device",
        "fingerprint": "abc",
        "baseline": "/serving/1",
        "model": 7,
    }
    _SIGNATURES["serving_default"].outputs["late"].dtype = 1
    execute(model, serving, tmp_path / "other", number=8)
    assert about_version(serving, versions(serving)[-1])["signatures"] != hashed
    copied = targets.of(str(serving)).push(f"{serving}/{version}", 3)  # a rollback
    assert about_version(serving, copied)["signatures"] == hashed


def test_push_of_a_run_that_was_killed_before_its_record_is_not_repeated(
    model, serving, tmp_path
):
    execute(model, serving, tmp_path / "killed")
    pushed = execute(model, serving, tmp_path / "next")
    (version,) = versions(serving)
    assert pushed.get_string_custom_property("pushed_version") == str(version)
    assert os.readlink(tmp_path / "next") == str(serving / str(version))
    execute(model, serving, tmp_path / "another model", number=8)
    execute(model, serving, tmp_path / "the first, live again")
    assert len(versions(serving)) == 3


def test_a_model_that_a_rollback_withdrew_is_not_pushed_again(model, serving, tmp_path):
    def run(name, number):
        how = {"number": number, "keep": 9, "run": name}
        return execute(model, serving, tmp_path / name, **how)

    for name, number in (("a", 1), ("b", 2)):
        run(name, number)
    first, _ = versions(serving)
    copy = targets.of(str(serving)).push(f"{serving}/{first}", keep=9)  # a rollback
    assert run("c", 2).get_int_custom_property("pushed") == 0
    assert run("d", 1).get_string_custom_property("pushed_version") == str(copy)
    for name, number in (("e", 3), ("f", 2), ("g", 3), ("h", 2)):  # no rollback since
        run(name, number)
    assert len(versions(serving)) == 7


def test_a_run_does_not_push_over_a_version_that_appeared_meanwhile(
    model, serving, tmp_path, monkeypatch
):
    monkeypatch.setenv(NEWEST_VARIABLE, "0")
    execute(model, serving, tmp_path / "first", number=1)
    with pytest.raises(
        UserError, match=r"version \d+ appeared in .* and is not pushed"
    ):
        execute(model, serving, tmp_path / "second", number=2)
    monkeypatch.setenv(NEWEST_VARIABLE, str(versions(serving)[-1]))
    execute(model, serving, tmp_path / "third", number=3)
    assert len(versions(serving)) == 2


def test_a_canary_is_replaced_and_leaves_the_live_version_alone(
    model, serving, tmp_path, monkeypatch
):
    slot = tmp_path / "canary"

    def run(name, number):
        how = {"number": number, "keep": 1, "live": serving}
        return execute(model, slot, tmp_path / name, **how)

    execute(model, serving, tmp_path / "live", number=1)
    monkeypatch.setenv(NEWEST_VARIABLE, "0")  # as if that version appeared meanwhile
    first, second = run("a", 2), run("b", 3)
    assert first.get_string_custom_property("slot") == "canary"
    (newest,) = versions(slot)
    assert second.get_string_custom_property("pushed_version") == str(newest)
    assert second.get_string_custom_property("pushed_destination").startswith(str(slot))
    assert run("c", 1).get_int_custom_property("pushed") == 0  # is live
    monkeypatch.setenv(ABORTED_VARIABLE, "[9, 4]")
    assert run("d", 4).get_int_custom_property("pushed") == 0
    assert versions(slot) == [newest] and len(versions(serving)) == 1


def test_model_that_is_not_blessed_is_not_pushed(model, serving, tmp_path):
    pushed = execute(model, serving, tmp_path / "pushed", blessed=False)
    assert pushed.get_int_custom_property("pushed") == 0
    assert not serving.exists()
