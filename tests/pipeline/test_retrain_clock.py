"""`strategos retrain --dry-run` at given times, on a recorded history."""

from __future__ import annotations

import datetime
import json
import time
from zoneinfo import ZoneInfo

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline import cli
from strategos.pipeline.config.loading import load
from strategos.pipeline.history import decisions
from strategos.pipeline.plan import caching
from strategos.pipeline.root import RUN_CONTEXT, metadata

_BERLIN = ZoneInfo("Europe/Berlin")
_NIGHTLY = "schedule={cron: 30 2 * * *, timezone: Europe/Berlin, max_age: 30d}"


def moment(text, fold=0):
    """Unix seconds of a time in Berlin; `fold` 1 is the second 02:30 of autumn."""
    local = datetime.datetime.fromisoformat(text)
    return local.replace(tzinfo=_BERLIN, fold=fold).timestamp()


@pytest.fixture
def ran(workload):
    """Records a run on both spans at a time: `ran(seconds)`."""
    connection = metadata.connection(workload.parent / "runs")
    (workload.parent / "runs").mkdir()
    database = ml_metadata.MetadataStore(connection)
    kind = database.put_context_type(mlmd.ContextType(name=RUN_CONTEXT))

    def ran(when, target=None):
        context = mlmd.Context(type_id=kind, name=f"run at {when}")
        facts = context.custom_properties
        facts["pipeline"].string_value = "flights"
        facts["outcome"].string_value = "blessed"
        facts["spans"].string_value = "[[1, null], [2, null]]"
        if target:
            facts["target"].string_value = json.dumps(target)
        facts["started"].double_value = facts["finished"].double_value = when
        database.put_contexts([context])

    return ran


@pytest.fixture
def decide(workload, monkeypatch, capsys):
    """The decision of the command at a time: `decide(seconds)`.

    `record` keeps it, as `--if-due` does.
    """

    def decide(when, record=False):
        monkeypatch.setattr(time, "time", lambda: when)
        words = ("--set", "pusher=null", "--set", _NIGHTLY, "--dry-run", "--json")
        assert cli.main(["retrain", str(workload), *words]) == 0
        decision = json.loads(capsys.readouterr().out)
        if record:
            decisions.record(str(workload.parent / "runs"), "flights", decision)
        return decision

    decide.config = load(workload, sets=("pusher=null",)).config
    return decide


@pytest.mark.parametrize(
    ("noon_before", "early", "late", "shown"),
    [
        ("2026-03-28T12:00", "2026-03-29T01:59", "2026-03-29T03:00", "03:00 CEST"),
        ("2026-10-24T12:00", "2026-10-25T02:29", "2026-10-25T02:31", "02:30 CEST"),
    ],
    ids=["forward", "back"],
)
def test_a_night_that_changes_the_clock_has_one_run(
    ran, decide, noon_before, early, late, shown
):
    ran(moment(noon_before))
    waits = decide(moment(early))
    assert not waits["due"]
    assert moment(early) < waits["next"] <= moment(late)
    due = decide(moment(late))
    assert due["trigger"] == "cron" and f"{shown} of `schedule.cron`" in due["reason"]
    ran(moment(late))
    after = decide(moment(late, fold=1) + 3600)
    assert not after["due"]
    assert after["next"] - moment(late) > 22 * 3600


def test_a_week_without_a_tick_is_made_up_for_once(ran, decide):
    ran(moment("2026-11-01T12:00"))
    missed = decide(moment("2026-11-09T12:00"))
    assert missed["reason"].startswith("Due: 2026-11-02 02:30 CET of `schedule.cron`")
    ran(moment("2026-11-09T12:00"))
    assert not decide(moment("2026-11-09T12:05"))["due"]
    assert decide(moment("2026-11-10T02:30"))["due"]


@pytest.mark.parametrize(
    "other", [["span-{SPAN}/*.csv", "staging"], ["france/span-{SPAN}/*.csv", ""]]
)
def test_runs_of_another_target_or_other_data_do_not_count(ran, decide, other):
    ran(moment("2026-11-01T12:00"), other)
    assert decide(moment("2026-11-01T13:00"))["trigger"] == "first"
    own = caching.target_key(decide.config)
    ran(moment("2026-11-01T14:00"), json.loads(own))
    ran(moment("2026-11-01T15:00"), other)
    assert not decide(moment("2026-11-01T16:00"))["due"]
    assert decide(moment("2026-11-02T02:30"))["trigger"] == "cron"


@pytest.mark.parametrize("back", [60, 40_000])
def test_a_clock_that_went_back_a_little_repeats_no_run(ran, decide, back):
    ran(moment("2026-11-09T02:30"))
    for passed in (0, back / 2, back):
        decision = decide(moment("2026-11-09T02:30") - back + passed, record=True)
        assert not decision["due"]
    assert decide(moment("2026-11-10T02:30"))["trigger"] == "cron"


def test_a_run_of_a_clock_that_was_far_ahead_does_not_stop_the_schedule(ran, decide):
    ran(moment("2026-11-09T12:00"))
    assert decide(moment("2036-11-09T12:00"), record=True)["trigger"] == "cron"
    ran(moment("2036-11-09T12:00"))
    assert not decide(moment("2026-11-09T12:30"), record=True)["due"]
    assert not decide(moment("2026-11-10T02:29"), record=True)["due"]
    assert decide(moment("2026-11-10T02:30"))["trigger"] == "cron"
