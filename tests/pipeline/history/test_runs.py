from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2

from strategos.components.errors import UserError
from strategos.pipeline.history import runs
from strategos.pipeline.root import lock


class CountingStore:
    """Passes calls on to the real store and counts them."""

    def __init__(self, mlmd):
        self._mlmd = mlmd
        self.calls = 0

    def __getattr__(self, name):
        self.calls += 1
        return getattr(self._mlmd, name)


def test_history_is_newest_first_with_outcomes_and_metrics(past_runs):
    listed = runs.history(past_runs.open())
    assert [run.run_id for run in listed] == [*past_runs.ids.values()][::-1]
    assert [run.outcome for run in listed] == [
        *("interrupted", "failed", "not blessed", "blessed", "blessed")
    ]
    assert [run.blessed for run in listed] == [True, None, False, True, True]
    assert listed[-1].metrics == {"auc": 0.74, "accuracy": 0.8}
    assert listed[1].metrics == {}
    assert listed[-1].pushed == listed[-2].pushed
    assert listed[2].pushed is None
    assert {run.pipeline for run in listed} == {"flights"}


def test_history_can_be_limited_to_a_number_and_a_pipeline(past_runs):
    store = past_runs.open()
    assert [run.run_id for run in runs.history(store, limit=1)] == [
        past_runs.ids["killed"]
    ]
    assert len(runs.history(store, pipeline="flights")) == 5
    assert runs.history(store, pipeline="trains") == []


def test_history_asks_two_questions_more_for_a_further_run_at_most(past_runs):
    store = past_runs.open()
    store.mlmd = counting = CountingStore(store.mlmd)
    runs.history(store, limit=1)
    for_one, counting.calls = counting.calls, 0
    listed = runs.history(store)
    assert counting.calls <= for_one + 2 * (len(listed) - 1)


def test_the_last_run_is_the_default(past_runs):
    assert runs.run(past_runs.open()).run_id == past_runs.ids["killed"]


def test_a_run_shows_nodes_rows_summary_and_trainer(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["pushed"])
    states = {node.name: node.state for node in run.nodes}
    assert set(states.values()) == {"complete"}
    assert [*states][-4:] == ["Trainer", "Evaluator", "EvaluationGate", "Pusher"]
    rows = {node.name: node.rows for node in run.nodes}
    assert (rows["ExampleGen"], rows["Evaluator"], rows["Trainer"]) == (200, 20, None)
    assert all(node.seconds > 0 for node in run.nodes)
    assert run.summary["bounds"][0]["required"] == 0.7
    assert run.trainer["strategy"] == "one_device"
    assert run.trainer["history"] == {"loss": [0.5, 0.4]}
    assert run.trainer["evaluation"] == {"auc": 0.7}
    assert run.duration > 0
    assert (run.runner, run.host) == ("local", "here")


def test_cached_nodes_show_as_cached_with_what_they_reused(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["cached"])
    assert {node.state for node in run.nodes} == {"cached"}
    assert run.nodes[1].rows == 200
    assert run.blessed and run.pushed and run.summary


def test_a_failed_node_carries_its_cause(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["failed"])
    last = run.nodes[-1]
    assert (last.name, last.state) == ("Transform", "failed")
    assert last.cause == run.cause == "preprocessing.py:7: broken"
    assert runs.to_json(run)["error"]["place"]["line"] == 7
    assert run.summary is None and run.trainer == {}


def test_a_gate_that_stopped_the_run_shows_as_stopped(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["gated"])
    assert (run.nodes[-1].name, run.nodes[-1].state) == ("EvaluationGate", "stopped")
    assert run.blessed is False and run.pushed is None
    assert run.cause == "auc, overall: too low"  # recorded before errors had fields


def test_a_run_without_an_outcome_runs_only_while_it_holds_the_lock(past_runs):
    killed = past_runs.ids["killed"]
    assert runs.run(past_runs.open(), killed).outcome == "interrupted"
    with lock.hold(past_runs.root, run_id=killed):
        assert runs.run(past_runs.open(), killed).outcome == "running"
        assert runs.history(past_runs.open(), limit=1)[0].outcome == "running"
    with lock.hold(past_runs.root, run_id="another"):
        assert runs.run(past_runs.open(), killed).outcome == "interrupted"


def test_a_node_left_running_by_a_killed_run_shows_as_interrupted(past_runs, tmp_path):
    copy = tmp_path / "metadata.sqlite"
    shutil.copy(past_runs.root / "metadata.sqlite", copy)
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(copy)
    mlmd = ml_metadata.MetadataStore(config)
    killed = past_runs.ids["killed"]
    context = mlmd.get_context_by_type_and_name("pipeline_run", killed)
    execution = mlmd.get_executions_by_context(context.id)[-1]
    execution.last_known_state = execution.RUNNING
    mlmd.put_executions([execution])
    states = {node.state for node in runs.run(runs.Store(config), killed).nodes}
    assert states == {"cached", "interrupted"}


def test_a_run_is_found_by_an_unambiguous_beginning(past_runs):
    run_id = past_runs.ids["failed"]
    assert runs.run(past_runs.open(), run_id[:-1]).run_id == run_id


@pytest.mark.parametrize("wrong", ["nonsense", "20", "2026-01-01T00:00:00.000000"])
def test_an_unknown_run_is_rejected_with_known_ones(past_runs, wrong):
    with pytest.raises(UserError) as caught:
        runs.run(past_runs.open(), wrong)
    assert str(caught.value).startswith(f"run {wrong}: no such run; ")
    assert any(known in str(caught.value) for known in past_runs.ids.values())


def test_runs_are_json(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["pushed"])
    plain = json.loads(json.dumps(runs.to_json(run)))
    assert plain["run_id"] == run.run_id
    assert plain["duration"] == run.duration
    assert plain["nodes"][0]["state"] == "complete"


def test_json_of_a_run_of_many_slices_is_short_unless_all_are_wanted(past_runs):
    run = runs.run(past_runs.open(), past_runs.ids["pushed"])
    metrics = {f"metric_{i}": 1 / (i + 3) for i in range(9)}
    piece = {"feature": "f", "value": "v", "examples": 5, "metrics": metrics}
    bounds = run.summary["bounds"] * 50_000
    many = run.summary | {"slices": [piece] * 61_010, "bounds": bounds}
    run = dataclasses.replace(run, summary=many)
    short = runs.to_json(run)
    assert len(json.dumps(short, indent=2)) < 100_000
    assert short["summary"]["left_out"]["slices"] == 60_910
    assert runs.to_json(run, slices=True)["summary"] == many


@pytest.mark.parametrize("content", [None, b""])
def test_a_root_without_runs_reports_it_and_gets_no_database(tmp_path, content):
    config = metadata_store_pb2.ConnectionConfig()
    database = tmp_path / "metadata.sqlite"
    if content is not None:
        database.write_bytes(content)
    config.sqlite.filename_uri = str(database)
    with pytest.raises(UserError, match=f"no runs yet under {tmp_path}"):
        runs.Store(config)
    assert not database.exists() or database.read_bytes() == b""


@pytest.mark.parametrize("size", [5000, 100_000])
def test_a_corrupt_database_is_named_with_what_to_do(past_runs, tmp_path, size):
    database = tmp_path / "metadata.sqlite"
    whole = (past_runs.root / "metadata.sqlite").read_bytes()
    database.write_bytes(whole[:size])
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(database)
    with pytest.raises(UserError) as caught:
        runs.history(runs.Store(config))
    assert str(caught.value).startswith(f"{database}: ")
    assert "malformed" in str(caught.value) and "backup" in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path):
    config = metadata_store_pb2.ConnectionConfig()
    config.sqlite.filename_uri = str(tmp_path / "metadata.sqlite")
    (tmp_path / "metadata.sqlite").write_text("name: flights\n" * 100)
    with pytest.raises(UserError, match="file is not a database"):
        runs.Store(config)


def test_reading_needs_neither_tensorflow_nor_tfx():
    code = (
        "import sys\n"
        "from strategos.pipeline.history import runs\n"
        "from strategos.pipeline.view import lineage, report\n"
        "print({'tensorflow', 'tfx', 'numpy', 'pydantic'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
