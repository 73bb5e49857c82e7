"""The decision to retrain, as a function of values."""

from __future__ import annotations

import dataclasses
import datetime
from zoneinfo import ZoneInfo

import pytest

from strategos.pipeline.config.operating import Schedule
from strategos.pipeline.history.attempts import Push, RunAttempt
from strategos.pipeline.history.models import Version
from strategos.pipeline.plan import retraining
from strategos.pipeline.plan.span_preview import Preview

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_NOW = 1_795_278_914.0  # Saturday, 2026-11-21 16:35:14 UTC
ONE, TWO, THREE = (1, None), (2, None), (3, None)


def push(*spans, pushed_at=_NOW - 3 * _DAY):
    return Push("a run", pushed_at, "serving/1795019714", "1795019714", spans)


def attempt(outcome, *spans, ago, data="d", settings="s"):
    ended = _NOW - ago
    return RunAttempt(f"r{ago}", ended - 60, ended, outcome, spans, data, settings)


def decide(spans, last=None, *attempts, now=_NOW, pushes=True, data="d", **schedule):
    facts = retraining.Facts(now, spans, data, "s", last, attempts, pushes)
    return retraining.decide(facts, Schedule(**schedule))


def test_a_first_run_is_due_on_all_spans():
    decision = decide([TWO, ONE])
    assert (decision.due, decision.trigger) == (True, "first")
    assert decision.spans == decision.new == (ONE, TWO)
    assert decision.reason == (
        "Due: no model has been pushed yet (2 spans to learn from)."
    )


def test_a_new_span_is_due_and_named():
    decision = decide([ONE, TWO], push(ONE))
    assert (decision.due, decision.trigger) == (True, "new_spans")
    assert decision.new == (TWO,)
    assert decision.spans == (ONE, TWO)
    assert decision.reason == (
        "Due: span 2 came after model 1795019714, pushed 3 days ago."
    )


@pytest.mark.parametrize(
    ("slot", "reason"),
    [
        ("canary", "canary 1795019714, pushed {}, is neither promoted nor aborted."),
        ("approval", "version 1795019714, pushed {}, awaits approval."),
    ],
)
def test_nothing_is_due_while_a_version_waits_for_a_verdict(slot, reason):
    waiting = Version(1795019714, "trial", pushed_at=_NOW - _HOUR, slot=slot)
    facts = retraining.Facts(_NOW, [ONE, TWO], canary=waiting)
    decision = retraining.decide(facts, Schedule(max_age="1s"))
    assert (decision.due, decision.new) == (False, (ONE, TWO))
    assert decision.reason == f"Not due: {reason.format('1 h 00 min ago')}"


def test_a_new_version_of_a_known_span_is_due():
    decision = decide([(1, 3), (2, 1)], push((1, 2), (2, 1)))
    assert decision.due
    assert decision.new == ((1, 3),)
    assert "version 3 of span 1 (it saw 2)" in decision.reason


@pytest.mark.parametrize(
    ("preview", "trigger", "reason"),
    [
        ({"distances": {"x": 0.1, "y": 0.5}}, "", ""),
        (
            {"distances": {"x": 0.2, "y": 0.7}, "chance": {"x": 0.06, "y": 0.05}},
            "drift",
            "`x` of span 2 is at a distance of 0.2 from span 1, the newest one of the "
            "model in production (`schedule.drift` allows 0.1, and chance explains "
            "0.06)",
        ),
        ({"distances": {"x": 0.2}, "chance": {"x": 0.21}}, "", ""),
        ({"problem": "no column `x`"}, "drift", "span 2 cannot be compared: no column"),
        ({"metrics": {"auc": 0.76}}, "", ""),
        (
            {"metrics": {"auc": 0.7}},
            "metrics",
            "auc of the model in production on span 2 is 0.7, 0.8 at its evaluation "
            "(`schedule.metrics`: a drop of at most 0.05)",
        ),
        ({"metrics": {"auc": None}}, "metrics", "on span 2 is undefined"),
    ],
)
def test_drift_and_a_fall_of_metrics_make_a_run_due(preview, trigger, reason):
    previews = {2: Preview(reference=1, usual={"auc": 0.8}, **preview)}
    schedule = Schedule(
        new_spans="never",
        drift={"at_most": 0.1, "features": {"y": 0.65}},
        metrics={"auc": {"may_drop": 0.05}},
    )

    def decided(*attempts):
        facts = retraining.Facts(
            _NOW, [ONE, TWO], "d", "s", push(ONE), attempts, previews=previews
        )
        return retraining.decide(facts, schedule)

    decision = decided()
    assert (decision.due, decision.trigger) == (bool(trigger), trigger)
    assert reason in decision.reason
    rejected = attempt("not blessed", ONE, TWO, ago=_HOUR)
    assert not decided(rejected).due


def test_a_span_that_cannot_be_measured_is_due_by_metrics_alone():
    previews = {2: Preview(reference=1, usual={"auc": 0.8}, problem="no `late`")}
    schedule = Schedule(new_spans="never", metrics={"auc": {"may_drop": 0.05}})
    facts = retraining.Facts(
        _NOW, [ONE, TWO], "d", "s", push(ONE), (), previews=previews
    )
    decision = retraining.decide(facts, schedule)
    assert (decision.due, decision.trigger) == (True, "metrics")
    assert "cannot be measured on span 2: no `late`" in decision.reason


def test_spans_at_fault_are_left_out_and_tried_again_once_they_change():
    stopped = dataclasses.replace(
        attempt("stopped", ONE, TWO, ago=_HOUR), at_fault={2: "f"}
    )

    def decided(*spans, left_out):
        facts = retraining.Facts(
            _NOW, spans, "d2", "s", push(ONE), [stopped], left_out=left_out
        )
        return retraining.decide(facts, Schedule())

    unchanged = decided(ONE, left_out={2: "r1"})
    assert (unchanged.due, unchanged.left_out) == (False, (2,))
    why = "left out, because a gate found it at fault: span 2 (run r1)."
    assert unchanged.reason.endswith(why)
    later = decided(ONE, THREE, left_out={2: "r1"})
    assert (later.due, later.new) == (True, (THREE,))
    changed = decided(ONE, TWO, left_out={})
    assert (changed.due, changed.new) == (True, (TWO,))


def test_an_older_version_or_a_vanished_span_is_not_due():
    assert not decide([(1, 1)], push((1, 2), (2, None))).due


def test_many_new_spans_are_counted_not_listed():
    decision = decide([(n, None) for n in range(30)], push())
    assert "span 0, span 1, span 2, span 3 and 26 more came" in decision.reason


@pytest.mark.parametrize(("wanted", "due"), [(1, True), (2, True), (3, False)])
def test_so_many_new_spans_make_a_run_due(wanted, due):
    decision = decide([ONE, TWO, THREE], push(ONE), new_spans=str(wanted))
    assert decision.due is due
    if not due:
        assert "2 spans came after it, but `schedule.new_spans` is 3" in decision.reason


def test_new_spans_alone_are_not_due_where_the_schedule_forbids_it():
    decision = decide([ONE], push(), new_spans="never", max_age="30d")
    assert not decision.due
    assert "1 span came after it, but `schedule.new_spans` is never" in decision.reason


@pytest.mark.parametrize(("days", "due"), [(4, False), (3, True), (2, True)])
def test_age_is_due_once_the_limit_is_reached(days, due):
    decision = decide([ONE], push(ONE), max_age=f"{days}d")
    assert decision.due is decision.anew is due
    assert decision.next == (None if due else _NOW + _DAY)


def test_a_due_age_with_new_data_needs_no_run_without_cache():
    decision = decide([ONE, TWO], push(ONE), new_spans="2", max_age="2d")
    assert (decision.due, decision.trigger, decision.anew) == (True, "max_age", False)


def test_not_due_reports_what_it_waits_for():
    assert decide([ONE], push(ONE), max_age="7d").reason == (
        "Not due: model 1795019714, pushed 3 days ago, was trained on all spans; "
        "`schedule.max_age` is reached in 4 days."
    )


def test_a_clock_that_went_back_is_not_an_age():
    last = push(ONE, pushed_at=_NOW + 60)
    decision = decide([ONE], last, max_age="1d", cron="* * * * *")
    assert not decision.due


def test_times_far_in_the_future_count_from_the_first_check():
    """A clock that was 99 days ahead does not stop the schedule for 99 days."""
    failed = attempt("failed", ONE, ago=-99 * _DAY)
    last = push(ONE, pushed_at=_NOW + 99 * _DAY)
    for attempts, limit, trigger in (([failed], None, "retry"), ([], "1d", "max_age")):
        facts = retraining.Facts(_NOW, [ONE], "d", "s", last, attempts)
        schedule = Schedule(max_age=limit)
        assert not retraining.decide(facts, schedule).due
        checked = dataclasses.replace(facts, checked=_NOW - _DAY)
        assert retraining.decide(checked, schedule).trigger == trigger


def test_short_ages_have_hours_and_minutes():
    last = push(ONE, pushed_at=_NOW - 5400)
    assert "pushed 1 h 30 min ago" in decide([ONE], last).reason


# Cron.


def test_a_time_of_cron_that_has_come_is_due_once_however_many_were_missed():
    ran = attempt("blessed", ONE, ago=9 * _DAY)
    late = decide([ONE], push(ONE), ran, cron="30 2 * * *")
    assert (late.due, late.trigger) == (True, "cron")
    assert (
        "2026-11-13 02:30 UTC of `schedule.cron` (30 2 * * *) has come" in late.reason
    )
    made_up = attempt("blessed", ONE, ago=_MINUTE)
    after = decide([ONE], push(ONE), made_up, cron="30 2 * * *")
    assert not after.due
    assert "the next time of `schedule.cron` is in 9 h 54 min" in after.reason
    tomorrow = datetime.datetime(2026, 11, 22, 2, 30, tzinfo=datetime.timezone.utc)
    assert after.next == tomorrow.timestamp()


@pytest.mark.parametrize(
    ("day", "hour"),
    [
        ((2026, 3, 29), "03:00 CEST"),  # 02:30 does not exist
        ((2026, 10, 25), "02:30 CEST"),  # 02:30 comes twice
        ((2026, 7, 1), "02:30 CEST"),
    ],
)
def test_cron_follows_daylight_saving_and_fires_once(day, hour):
    zone = ZoneInfo("Europe/Berlin")
    midnight = datetime.datetime(*day, tzinfo=zone).timestamp()
    schedule = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
    ran = RunAttempt("r", midnight - 60, midnight, "blessed", (ONE,), "d", "s")
    due = decide([ONE], push(ONE), ran, now=midnight + 6 * _HOUR, **schedule)
    assert f"{hour} of `schedule.cron`" in due.reason
    again = RunAttempt("r", midnight + 6 * _HOUR, midnight, "blessed", (ONE,), "d", "s")
    later = midnight + 12 * _HOUR
    assert not decide([ONE], push(ONE), again, now=later, **schedule).due


# After failures.


@pytest.mark.parametrize(
    ("minutes", "failures", "due"),
    [(9, 1, False), (11, 1, True), (19, 2, False), (21, 2, True), (39, 3, False)],
)
def test_failed_runs_are_tried_again_ever_later(minutes, failures, due):
    failed = [
        attempt("failed" if n % 2 else "interrupted", ago=(minutes + n) * _MINUTE)
        for n in range(failures)
    ]
    ran = attempt("blessed", ONE, ago=_DAY)
    decision = decide([ONE, TWO], push(ONE), *failed, ran)
    assert decision.due is due
    if not due:
        assert "; the next attempt may start in " in decision.reason
        assert decision.next > _NOW


def test_attempts_are_never_more_than_a_day_apart():
    failed = [attempt("failed", ago=_DAY + n) for n in range(30)]
    assert decide([ONE], None, *failed).due


def test_a_failed_run_is_due_though_nothing_else_is():
    failed = attempt("failed", ago=_HOUR)
    ran = attempt("blessed", ONE, ago=_DAY)
    decision = decide([ONE], push(ONE), failed, ran)
    assert (decision.due, decision.trigger) == (True, "retry")
    assert decision.reason == "Due: run r3600 failed 1 h 00 min ago."


def test_a_running_run_is_not_joined():
    running = attempt("running", ago=-60)
    decision = decide([ONE, TWO], push(ONE), running)
    assert not decision.due
    assert "has been running for" in decision.reason


# After a gate.


@pytest.mark.parametrize("outcome", ["not blessed", "stopped"])
@pytest.mark.parametrize("last", [None, push(ONE)], ids=["no-model", "a-model"])
def test_a_rejected_candidate_is_not_tried_again_on_the_same_data(outcome, last):
    rejected = attempt(outcome, ONE, TWO, ago=_HOUR)
    decision = decide([ONE, TWO], last, rejected, max_age="1d", cron="* * * * *")
    assert not decision.due
    assert f"run r3600 was {outcome} on the same data with the same" in decision.reason


def test_new_data_or_a_change_ends_the_wait_of_a_rejected_candidate():
    rejected = attempt("not blessed", ONE, TWO, ago=_HOUR)
    more = decide([ONE, TWO, THREE], push(ONE), rejected)
    assert more.reason == ("Due: span 3 came after run r3600, which was not blessed.")
    other_files = decide([ONE, TWO], push(ONE), rejected, data="e")
    assert (other_files.due, other_files.trigger) == (True, "new_spans")
    assert other_files.reason == (
        "Due: files of its spans have changed since run r3600, which was not blessed."
    )
    by_age = {"new_spans": "never", "max_age": "1d"}
    other_files = decide([ONE, TWO], push(ONE), rejected, data="e", **by_age)
    assert (other_files.due, other_files.trigger) == (True, "max_age")
    changed = attempt("not blessed", ONE, TWO, ago=_HOUR, settings="old")
    assert decide([ONE, TWO], push(ONE), changed, on_change=True).trigger == "on_change"
    assert not decide([ONE, TWO], push(ONE), changed).due


def test_what_a_run_waits_for_is_true():
    withdrawn = attempt("blessed", ONE, TWO, ago=_HOUR)
    rolled_back = decide([ONE, TWO], push(ONE), withdrawn)
    assert rolled_back.reason.endswith(
        "3 days ago, no span came after run r3600, which was blessed."
    )
    corrected = decide([ONE, TWO], push(ONE, TWO), withdrawn, data="e")
    assert not corrected.due
    assert corrected.reason.endswith("was trained on earlier files of these spans.")
    vanished = attempt("not blessed", ONE, TWO, ago=_HOUR)
    assert not decide([ONE], push(ONE), vanished, data="e").due


# Without a pusher.


def test_without_a_pusher_the_last_run_counts():
    ran = attempt("finished", ONE, ago=_HOUR)
    assert decide([ONE, TWO], None, ran, pushes=False).trigger == "new_spans"
    done = decide([ONE], None, ran, pushes=False)
    assert done.reason == (
        "Not due: the model of run r3600, made 1 h 00 min ago, was trained on all "
        "spans."
    )
