"""Schedules of services: their cron, and the commands that create and delete them."""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import sys

import pytest
from cronsim import CronSim

from strategos.components.errors import UserError
from strategos.pipeline import cli
from strategos.pipeline.config import loading
from strategos.pipeline.remote import cron, kubeflow
from strategos.pipeline.remote.kubeflow_api import Api
from strategos.pipeline.remote.retries import Retries

BEGIN = datetime.datetime(2026, 11, 23, 4, 0, tzinfo=datetime.timezone.utc)


@pytest.fixture
def scheduled(workload):
    """The workload with a schedule: `scheduled(cron, zone="UTC", **kubeflow)`."""

    def load(expression, zone="UTC", **keys):
        section = {"image": "x", **keys}
        return loading.load(
            workload,
            (),
            [
                f"schedule={json.dumps({'cron': expression, 'timezone': zone})}",
                f"kubeflow={json.dumps(section)}",
            ],
        ).config

    return load


def fires(fields, begin, count):
    """The next times of the fields that KFP reads, after a time in the zone of KFP."""
    second, minute, hour, day, month, week = fields
    found, at = [], begin + datetime.timedelta(seconds=1)
    while len(found) < count:
        of_week = at.isoweekday() % 7 in week
        both = "*" in day or "*" in week
        on_day = (at.day in day) and of_week if both else at.day in day or of_week
        if at.month not in month or not on_day:
            at = (at + datetime.timedelta(days=1)).replace(hour=0, minute=0, second=0)
        elif at.hour not in hour:
            at = (at + datetime.timedelta(hours=1)).replace(minute=0, second=0)
        else:
            if at.minute in minute and at.second in second:
                found.append(at)
            at += datetime.timedelta(seconds=1)
    return found


@pytest.mark.parametrize(
    "expression",
    [
        "30 2 * * 1-5",
        "*/15 8-17 * * *",
        "5/20 3 */2 * *",
        "0 9 * * mon-fri",
        "0 0 1,15 * 7",
        "0 12 13 * 5",  # the 13th, and each Friday
        "0 12 */7 * 1",  # of these days, the Mondays
        "0 12 13 * 1-7,0",
        "1 4 * JAN,DEC *",
        "0 12 13 * *,5",
    ],
)
def test_kfp_fires_at_the_times_that_the_settings_mean(
    scheduled, kfp_reads, expression
):
    meant = list(itertools.islice(CronSim(expression, BEGIN), 4))
    read = kfp_reads(cron.seconds_first(scheduled(expression)))
    assert fires(read, BEGIN, 4) == meant
    fields = cron.zoned(scheduled(expression, "Europe/Berlin"))
    zone, *rest = fields.split()
    assert zone == "TZ=Europe/Berlin" and len(rest) == 5


def test_kfp_reads_five_fields_as_other_times(kfp_reads):
    """Which is why they are converted."""
    first, second = fires(kfp_reads("30 3 * * *"), BEGIN, 2)
    assert (first.minute, first.second) == (3, 30)
    assert second - first == datetime.timedelta(hours=1)


@pytest.mark.parametrize("expression", ["0 0 L * *", "0 0 LW * *", "0 0 * * 5#2"])
def test_what_services_do_not_know_is_rejected(scheduled, expression):
    with pytest.raises(UserError, match=r"schedule.cron: .*neither `L`, `W` nor `#`"):
        cron.seconds_first(scheduled(expression))


@pytest.mark.parametrize(
    ("expression", "why"),
    [("0 30 2 * * *", "five fields"), ("0 0 30 2 *", "Bad day-of-month")],
)
def test_six_fields_and_times_that_never_come_are_bad_settings(
    scheduled, expression, why
):
    with pytest.raises(UserError, match=why):
        scheduled(expression)


def test_kfp_has_one_time_zone(scheduled):
    with pytest.raises(UserError, match=r"schedule.timezone: .*all schedules in UTC"):
        cron.seconds_first(scheduled("30 2 * * *", "Europe/Berlin"))
    there = scheduled("30 2 * * *", "Europe/Berlin", timezone="Europe/Berlin")
    assert cron.seconds_first(there) == "0 30 2 * * *"


def test_the_next_run_is_shown_as_kfp_reads_the_expression():
    now = BEGIN.timestamp()
    found = cron.next_of_kfp("0 30 2 * * *", "Europe/Berlin", now)
    assert (
        found == datetime.datetime(2026, 11, 24, 1, 30, tzinfo=BEGIN.tzinfo).timestamp()
    )
    assert cron.next_of_kfp("30 3 * * *", "UTC", now) == now + 3 * 60 + 30
    assert cron.next_of_kfp("never", "UTC", now) is None


@pytest.fixture
def strategos(kfp, workload, capsys):
    """Calls `strategos schedule WHAT` for the stub: the exit code and the output."""

    def call(what, *sets, expression="30 2 * * 1-5"):
        overlay = workload.with_name("cluster.yaml")
        overlay.write_text(f"""
kubeflow: {{image: x, endpoint: '{kfp.url}'}}
pusher: {{to: 's3://models/flights'}}
schedule: {{cron: '{expression}'}}
""")
        words = ["schedule", what, str(workload), "--overlay", str(overlay)]
        code = cli.main([*words, "--target", "kubeflow", *sets])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def test_a_schedule_is_created_replaced_listed_and_deleted(strategos, kfp):
    assert strategos("list") == (0, "kubeflow has no schedule of flights\n")
    code, shown = strategos("create")
    assert code == 0
    assert shown.startswith("created c1  0 30 2 * * 1,2,3,4,5  next run 20")
    made = kfp.recurring["c1"]
    assert made["trigger"] == {"cron_schedule": {"cron": "0 30 2 * * 1,2,3,4,5"}}
    assert (made["max_concurrency"], made["no_catchup"]) == ("1", True)
    assert "Resolve" in made["pipeline_spec"]["root"]["dag"]["tasks"]
    kfp.recurring["c0"] = {**made, "recurring_run_id": "c0", "display_name": "other"}

    code, shown = strategos("create", expression="0 4 * * *")
    assert code == 0 and "replaced c1" in shown
    assert sorted(kfp.recurring) == ["c0", "c2"]
    kfp.recurring["c2"]["status"] = "DISABLED"
    assert strategos("list") == (0, "c2  0 0 4 * * *  paused\n")
    (listed,) = json.loads(strategos("list", "--json")[1])
    assert listed["recurring_id"] == "c2" and not listed["is_active"]
    assert strategos("delete")[0] == 0
    assert sorted(kfp.recurring) == ["c0"]


@pytest.mark.parametrize("what", ["create", "delete"])
def test_closed_output_leaves_no_schedule_too_many(strategos, kfp, monkeypatch, what):
    strategos("create")
    kfp.recurring["c0"] = {**kfp.recurring["c1"], "recurring_run_id": "c0"}

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with monkeypatch.context() as patch, contextlib.suppress(BrokenPipeError):
        patch.setattr(sys, "stdout", Closed())
        strategos(what)
    assert sorted(kfp.recurring) == (["c2"] if what == "create" else [])


def test_missing_data_of_the_image_are_made_before_a_schedule(strategos, kfp, write):
    write("making.py", "def prepare(folder):\n    raise OSError('no network')\n")
    sets = ("--set", "data.examples=made/*.csv", "--set", "data.prepare=making")
    code, shown = strategos("create", *sets)
    assert code == 2 and "making failed (see above), so no data exist" in shown
    assert kfp.recurring == {}


def test_all_problems_of_a_schedule_are_named_before_anything_is_sent(strategos, kfp):
    sets = ("schedule.timezone=Asia/Tokyo", "pusher.to=/elsewhere")
    code, shown = strategos("create", *(w for s in sets for w in ("--set", s)))
    assert code == 2 and kfp.asked == []
    assert "schedule.timezone: received Asia/Tokyo" in shown
    assert "pusher.to: received /elsewhere" in shown


def test_an_endpoint_that_is_not_kfp_is_one_message(strategos, kfp):
    kfp.get_healthz = lambda *given: (200, "<html>")
    for what in ("create", "list", "delete"):
        code, shown = strategos(what)
        assert code == 2 and "is not the API of Kubeflow Pipelines" in shown


def test_a_deletion_is_sent_again_and_a_creation_is_not(
    kfp, clock, configured, compiled
):
    config = configured(kfp.url, schedule={"cron": "0 4 * * *"})
    retries = Retries(clock=clock, sleep=clock.sleep)
    service = kubeflow.KubeflowPipelines(config, Api(config, kfp.url), "", retries)
    kfp.fails["POST /apis/v2beta1/recurringruns"] = [500]
    with pytest.raises(UserError, match="answers 500"):
        service.create_recurring(compiled, "flights")
    assert clock.slept == []
    service.create_recurring(compiled, "flights")
    kfp.fails["DELETE"] = [503, 404]
    service.delete_recurring("c1")
    assert clock.slept == [1]
