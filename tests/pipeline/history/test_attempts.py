"""What decisions to retrain read from past runs."""

from __future__ import annotations

import json

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.history import attempts
from strategos.pipeline.history.store import Store
from strategos.pipeline.root import RUN_CONTEXT, lock, metadata

TARGET = "any"  # these runs are from before targets were recorded


def serving(past_runs):
    return str(past_runs.root / "serving")


def outcomes(past_runs, pipeline="flights"):
    found = attempts.attempts(past_runs.open(), pipeline, TARGET)
    return [each.outcome for each in found]


def test_the_last_push_is_the_run_that_made_it_and_its_spans(past_runs):
    push = attempts.last_push(past_runs.open(), "flights", serving(past_runs), TARGET)
    assert push.run_id == past_runs.ids["pushed"]
    assert push.spans == ((1, None), (2, None))
    assert push.destination.endswith(f"/serving/{push.version}")
    assert push.pushed_at == pytest.approx(int(push.version), abs=2)


def test_a_pipeline_that_never_pushed_has_no_last_push(past_runs):
    to = serving(past_runs)
    assert attempts.last_push(past_runs.open(), "trains", to, TARGET) is None


def test_attempts_go_back_to_the_last_run_that_made_a_model(past_runs):
    found = attempts.attempts(past_runs.open(), "flights", TARGET)
    order = ("killed", "failed", "gated", "cached")
    assert [each.run_id for each in found] == [past_runs.ids[name] for name in order]
    assert outcomes(past_runs) == ["interrupted", "failed", "not blessed", "blessed"]
    gated = found[2]
    assert gated.spans == ((1, None), (2, None), (3, 4))
    assert (gated.data, gated.settings) == ("da7a", "5e77")
    assert found[1].spans is None
    assert gated.started < gated.ended
    assert found[0].started == found[0].ended


def test_the_run_that_holds_the_lock_is_running(past_runs):
    with lock.hold(past_runs.root, run_id=past_runs.ids["killed"]):
        assert outcomes(past_runs)[0] == "running"


def test_other_pipelines_have_no_attempts_here(past_runs):
    assert outcomes(past_runs, "trains") == []


@pytest.mark.parametrize("recorded", [False, True])
def test_spans_at_fault_are_known_until_a_run_accepts_them(tmp_path, recorded):
    connection = metadata.connection(tmp_path)
    database = ml_metadata.MetadataStore(connection)
    kind = database.put_context_type(mlmd.ContextType(name=RUN_CONTEXT))

    def run(number, outcome, spans, at_fault):
        facts = {"pipeline": "p", "outcome": outcome, "spans": json.dumps(spans)}
        facts["error"] = json.dumps({"spans": at_fault})
        if recorded:
            known = attempts.rejected_spans(Store(connection), "p", TARGET)
            facts["rejected"] = json.dumps(known)
        context = mlmd.Context(type_id=kind, name=f"r{number}")
        for name, value in facts.items():
            context.custom_properties[name].string_value = value
        database.put_contexts([context])

    one, two, three = [1, None], [2, None], [3, None]
    run(1, "stopped", [one, two, three], {2: "b", 3: "c"})
    run(2, "blessed", [one], {})
    run(3, "stopped", [one, two], {2: "changed"})
    run(4, "blessed", [one, three], {})
    run(5, "failed", [one], {})
    found = attempts.rejected_spans(Store(connection), "p", TARGET)
    assert found == {2: ("changed", "r3")}
