"""What decisions to retrain read from past runs."""

from __future__ import annotations

import pytest

from strategos.pipeline.history import attempts
from strategos.pipeline.root import lock


def outcomes(past_runs, pipeline="flights"):
    return [each.outcome for each in attempts.attempts(past_runs.open(), pipeline)]


def test_the_last_push_is_the_run_that_made_it_and_its_spans(past_runs):
    push = attempts.last_push(past_runs.open(), "flights")
    assert push.run_id == past_runs.ids["pushed"]
    assert push.spans == ((1, None), (2, None))
    assert push.destination.endswith(f"/serving/{push.version}")
    assert push.pushed_at == pytest.approx(int(push.version), abs=2)


def test_a_pipeline_that_never_pushed_has_no_last_push(past_runs):
    assert attempts.last_push(past_runs.open(), "trains") is None


def test_attempts_go_back_to_the_last_run_that_made_a_model(past_runs):
    found = attempts.attempts(past_runs.open(), "flights")
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
