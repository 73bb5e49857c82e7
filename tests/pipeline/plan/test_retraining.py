from __future__ import annotations

import pytest

from strategos.pipeline.config.sections import Schedule
from strategos.pipeline.history.runs import Push
from strategos.pipeline.plan import retraining

_DAY = 86400
_NOW = 1_795_278_914.0


def push(*spans, pushed_at=_NOW - 3 * _DAY):
    return Push("a run", pushed_at, "serving/1795019714", "1795019714", spans)


def decide(spans, last, schedule=None):
    return retraining.decide(now=_NOW, spans=spans, last=last, settings=schedule)


def test_a_first_run_is_due_on_all_spans():
    decision = decide([(2, None), (1, None)], None)
    assert decision.due
    assert decision.spans == decision.new == ((1, None), (2, None))
    assert decision.reason == (
        "Due: no model has been pushed yet (2 spans to learn from)."
    )


def test_a_new_span_is_due_and_named():
    decision = decide([(1, None), (2, None)], push((1, None)))
    assert decision.due
    assert decision.new == ((2, None),)
    assert decision.spans == ((1, None), (2, None))
    assert decision.reason == (
        "Due: span 2 came after model 1795019714, pushed 3 days ago."
    )


def test_a_new_version_of_a_known_span_is_due():
    decision = decide([(1, 3), (2, 1)], push((1, 2), (2, 1)))
    assert decision.due
    assert decision.new == ((1, 3),)
    assert "version 3 of span 1 (it saw 2)" in decision.reason


def test_an_older_version_or_a_vanished_span_is_not_due():
    assert not decide([(1, 1)], push((1, 2), (2, None))).due


def test_many_new_spans_are_counted_not_listed():
    decision = decide([(n, None) for n in range(30)], push())
    assert "span 0, span 1, span 2, span 3 and 26 more came" in decision.reason


@pytest.mark.parametrize(("days", "due"), [(4, False), (3, True), (2, True)])
def test_age_is_due_once_the_limit_is_reached(days, due):
    schedule = Schedule(max_age=f"{days}d")
    assert decide([(1, None)], push((1, None)), schedule).due is due


def test_not_due_reports_what_it_waits_for():
    schedule = Schedule(max_age="7d")
    assert decide([(1, None)], push((1, None)), schedule).reason == (
        "Not due: model 1795019714, pushed 3 days ago, was trained on all spans; "
        "`schedule.max_age` is reached in 4 days."
    )


def test_new_spans_alone_are_not_due_where_the_schedule_forbids_it():
    decision = decide([(1, None)], push(), Schedule(on_new_span=False, max_age="30d"))
    assert not decision.due
    assert (
        "was not trained on 1 span, but `schedule.on_new_span` is false"
        in decision.reason
    )


def test_a_clock_that_went_back_is_not_an_age():
    assert not decide([(1, None)], push((1, None), pushed_at=_NOW + 60)).due


def test_short_ages_have_hours_and_minutes():
    last = push((1, None), pushed_at=_NOW - 5400)
    assert "pushed 1 h 30 min ago" in decide([(1, None)], last).reason
