from __future__ import annotations

import io
import json

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd
from rich.console import Console

from strategos.components.errors import UserError
from strategos.pipeline.history import lineage, runs
from strategos.pipeline.history.store import properties
from strategos.pipeline.view import lineage as lineage_view


@pytest.fixture
def store(past_runs):
    return past_runs.open()


def shown(found, width=100):
    file = io.StringIO()
    lineage_view.show(found, Console(file=file, width=width, highlight=False))
    return file.getvalue()


def test_a_pushed_model_is_traced_back_to_files_spans_and_code(store, past_runs):
    destination, version = runs.run(store, past_runs.ids["pushed"]).pushed
    found = lineage.lineage(store, version)
    assert (found.model, found.version) == (destination, version)
    assert (found.pipeline, found.run_id) == ("flights", past_runs.ids["pushed"])
    facts = {step.node: step.facts() for step in found.steps}
    assert facts["ExampleGen"]["spans"] == [[1, None], [2, None]]
    assert facts["ExampleGen"]["files"][0] == f"{past_runs.root}/span-1/data.csv"
    assert facts["ImportSchemaGen"]["fingerprint"] == "5c4e3a"
    assert "f00d" in facts["Transform"]["custom_config"]["user_module"]
    assert facts["Trainer"]["hyperparameters"]["units"] == [64, 32]
    assert facts["Trainer"]["strategy"] == "one_device"
    assert facts["Evaluator"]["auc"] == 0.74


def test_steps_come_after_what_they_read(store, past_runs):
    found = lineage.lineage(store, past_runs.ids["pushed"])
    seen = set()
    for step in found.steps:
        assert seen >= set(step.inputs)
        seen.add(step.execution)
    assert found.steps[-1].node == "Pusher"


@pytest.mark.parametrize("form", ["path", "slash", "folder", "version", "artifact"])
def test_a_model_is_found_by_any_of_its_names(store, past_runs, form):
    destination, version = runs.run(store, past_runs.ids["pushed"]).pushed
    by_version = lineage.lineage(store, version)
    names = {
        "path": destination,
        "slash": f"{destination}/",
        "folder": f"{past_runs.root}/serving",
        "version": version,
        "artifact": str(by_version.artifact),
    }
    assert lineage.lineage(store, names[form]) == by_version


def test_a_relative_path_names_the_same_model(store, past_runs, monkeypatch):
    _, version = runs.run(store, past_runs.ids["pushed"]).pushed
    monkeypatch.chdir(past_runs.root)
    found = lineage.lineage(store, f"serving/{version}")
    assert found.version == version


def test_a_cached_run_names_the_run_that_made_what_it_reused(store, past_runs):
    made, reused = past_runs.ids["pushed"], past_runs.ids["cached"]
    found = lineage.lineage(store, reused)
    assert found.run_id == reused
    assert all(step.reused and step.run_id == made for step in found.steps)
    assert not any(step.reused for step in lineage.lineage(store, made).steps)
    assert f"reused from run {made}" in shown(found)


def test_a_run_that_pushed_nothing_has_the_lineage_of_its_trained_model(
    store, past_runs
):
    found = lineage.lineage(store, past_runs.ids["gated"])
    assert found.version is None
    assert found.steps[-1].node == "Trainer"
    reused = {step.node for step in found.steps if step.reused}
    assert reused == {"ImportSchemaGen"}


def test_a_run_without_a_model_is_rejected(store, past_runs):
    run_id = past_runs.ids["failed"]
    with pytest.raises(UserError, match=f"run {run_id} made no model"):
        lineage.lineage(store, run_id)


@pytest.mark.parametrize("wrong", ["999999", "serving/elsewhere", "20260101-000000.0"])
def test_an_unknown_model_is_rejected_with_the_last_pushed(store, past_runs, wrong):
    with pytest.raises(UserError) as caught:
        lineage.lineage(store, wrong)
    assert str(caught.value).startswith(f"{wrong}: no such model. Pushed last: ")
    assert f"{past_runs.root}/serving/" in str(caught.value)


def test_the_tree_shows_data_schema_code_settings_and_strategy(store, past_runs):
    lines = shown(lineage.lineage(store, past_runs.ids["gated"]), 120).splitlines()
    text = "\n".join(line.strip(" │├└─") for line in lines)
    for expected in (
        "spans  1..2, 3 (version 4)",
        "rows  300: 240 train, 60 eval, split by hash of day",
        "file  flights.pbtxt",
        f"code  {past_runs.root}/preprocessing.py, fingerprint f00d",
        "hyperparameters  units=[64, 32], learning_rate=0.001",
        "training  5 epochs, batches of 512, 40 steps, seed 1",
        "strategy  one_device (no GPU is visible)",
    ):
        assert expected in text
    assert text.count("ExampleGen") == 1
    assert lines == [line.rstrip() for line in lines]


def test_data_and_schema_stand_under_transform(store, past_runs):
    lines = shown(lineage.lineage(store, past_runs.ids["pushed"])).splitlines()
    depth = {
        line.split("── ")[1].split()[0]: line.index("── ")
        for line in lines
        if "── " in line
    }
    assert depth["Trainer"] < depth["Transform"] < depth["ExampleGen"]
    assert depth["ExampleGen"] == depth["ImportSchemaGen"]


def test_lineage_is_json(store, past_runs):
    found = lineage.lineage(store, past_runs.ids["pushed"])
    plain = json.loads(json.dumps(lineage.to_json(found)))
    assert plain["steps"][-1]["node"] == "Pusher"
    assert plain["steps"][0]["outputs"][0]["uri"]


def test_how_tfx_records_a_failure_is_no_parameter_of_the_node():
    failed = mlmd.Execution()
    failed.properties["epochs"].int_value = 3
    failed.custom_properties["__execution_result__"].string_value = '{"code": 1}'
    assert properties(failed) == {"epochs": 3}
