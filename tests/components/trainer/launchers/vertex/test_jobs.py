"""Custom jobs by Google's real client, without tasks: requests, states, logs."""

from __future__ import annotations

import dataclasses
import datetime

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import vertex
from strategos.components.trainer.launchers.jobs import remote_task
from strategos.components.trainer.launchers.jobs.attempt import CODE_VARIABLE
from strategos.components.trainer.launchers.jobs.scheduler import UnreachableError
from strategos.components.trainer.launchers.jobs.vertex import logs
from strategos.components.user_code import fingerprint

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}


def test_job_has_a_pool_for_each_kind_of_task(jobs, service, attempts, settings):
    made = jobs(
        machine_type="g2-standard-8", accelerator={"type": "NVIDIA_L4", "count": 2}
    )
    distribution = {
        "strategy": "parameter_server",
        "workers": 2,
        "parameter_servers": 3,
    }
    attempt = attempts(**distribution).new()
    job = made.submit("strategos-1", attempt)
    assert (job.id, job.phase) == ("1", "waiting")
    spec = service.jobs["1"].job_spec
    assert [pool.replica_count for pool in spec.worker_pool_specs] == [1, 2, 3]
    for pool in spec.worker_pool_specs:
        assert pool.machine_spec.machine_type == "g2-standard-8"
        assert pool.machine_spec.accelerator_count == 2
        assert pool.container_spec.image_uri == "registry/strategos:1"
    assert spec.scheduling.disable_retries
    assert spec.service_account == settings["service_account"]
    (again,) = made.jobs("strategos-1")
    assert (again.id, again.folder) == (job.id, str(attempt.folder))
    assert made.jobs("strategos-2") == []


def test_job_on_a_tpu_uses_that_of_its_machine(jobs, service, attempts):
    made = jobs(machine_type="ct5lp-hightpu-4t")
    made.submit("t", attempts(strategy="tpu").new())
    (pool,) = service.jobs["1"].job_spec.worker_pool_specs
    assert pool.machine_spec.tpu_topology == "2x2"
    assert {e.name: e.value for e in pool.container_spec.env}["TPU_NAME"] == "local"
    with pytest.raises(UserError, match="NVIDIA_L4") as raised:
        jobs(accelerator={"type": "GPU", "count": 1}).submit("t", attempts().new())
    assert raised.value.key == "trainer.distribution.vertex.accelerator.type"


def test_job_whose_creation_was_not_answered_is_created_once(jobs, service, attempts):
    made, attempt = jobs(), attempts(strategy="auto").new()
    service.fails = [(200, ""), (-1, "")]  # the list, then the creation
    with pytest.raises(UnreachableError):
        made.submit("t", attempt)
    assert made.submit("t", attempt).id == "1" and len(service.jobs) == 1
    assert made.submit("t", attempts(strategy="auto").new()).id == "2"


@pytest.mark.parametrize(
    "state, phase, shown, cancelled",
    [
        ("PENDING", "waiting", "PENDING (no machines)", False),
        ("QUEUED", "waiting", "QUEUED (no machines)", False),
        ("RUNNING", "running", "RUNNING", False),
        ("CANCELLING", "running", "CANCELLING", True),
        ("CANCELLED", "ended", "CANCELLED", True),
        ("SUCCEEDED", "ended", "SUCCEEDED", False),
        ("FAILED", "ended", "FAILED", False),
        ("EXPIRED", "ended", "EXPIRED", False),
    ],
)
def test_state_has_the_reason_of_the_service(
    jobs, service, attempts, state, phase, shown, cancelled
):
    made, attempt = jobs(), attempts(strategy="auto").new()
    made.submit("t", attempt)
    service.log("1", "service", "no machines")
    list(made._logs_of("1").new_lines(attempt.tasks))
    service.jobs["1"].state = f"JOB_STATE_{state}"
    (found,) = made.jobs("t")
    assert (found.phase, found.state, found.cancelled) == (phase, shown, cancelled)
    service.jobs["1"].error.message = "The replica workerpool0-0 exited."
    assert "(The replica workerpool0-0 exited.)" in made.jobs("t")[0].state


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "EXPIRED"])
def test_job_whose_time_is_up_goes_on_in_another(jobs, service, attempts, state):
    made = jobs(time_limit=60.0)
    made.submit("t", attempts(strategy="auto").new())
    job = service.jobs["1"]
    assert job.job_spec.scheduling.timeout.total_seconds() == 60
    job.state, job.start_time = f"JOB_STATE_{state}", job.create_time
    job.end_time = job.create_time + datetime.timedelta(seconds=60)
    (found,) = made.jobs("t")
    assert found.reclaimed and not found.cancelled


@pytest.mark.parametrize(
    "status, text, kind, shown",
    [
        (400, "bad", UserError, "answers 400: bad"),
        (401, "no", UserError, "GOOGLE_APPLICATION_CREDENTIALS"),
        (403, "no", UserError, "roles/aiplatform.user"),
        (404, "no", UserError, "vertex.region"),
        (429, "The following quota metrics exceed: L4", UserError, "quota raised"),
        (429, "too many requests", UnreachableError, "429: too many"),
        (500, "no", UnreachableError, "500: no"),
        (503, "no", UnreachableError, "503: no"),
        (0, "", UnreachableError, ""),
    ],
)
def test_what_is_asked_again_and_what_is_not(
    jobs, service, attempts, status, text, kind, shown
):
    service.fails = [(200, ""), (status, text)]
    with pytest.raises(kind) as raised:
        jobs().submit("t", attempts(strategy="auto").new())
    assert shown in str(raised.value) and not service.jobs


def test_job_that_has_ended_may_be_cancelled(jobs, service, attempts):
    made = jobs()
    job = made.submit("t", attempts(strategy="auto").new())
    made.cancel(job)
    assert made.jobs("t")[0].state == "CANCELLED"
    service.fails = [(400, "it has ended")]
    made.cancel(job)


def test_missing_credentials_and_another_root_are_rejected(
    settings, tmp_path, monkeypatch
):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    with pytest.raises(UserError, match="application-default"):
        vertex.CustomJobs(settings, "")
    vertex.check("gs://bucket/root", settings)
    for root in ("/mnt/root", "s3://bucket/root"):
        with pytest.raises(UserError, match="gs://BUCKET/FOLDER") as raised:
            vertex.check(root, settings)
        assert raised.value.key == "run.root"


class Session:
    """Answers requests for logs: `(status, entries)`, one after the other."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def post(self, url, json, timeout):
        import requests

        self.asked.append(json)
        status, entries = self.answers.pop(0)
        if not status:
            raise requests.ConnectionError("away")
        answer = requests.Response()
        answer.status_code = status
        answer.json = lambda: {"entries": entries}
        return answer


def entry(number, second, text, task="workerpool0-0"):
    stamp = f"2026-11-23T04:00:{second:02}.5Z"
    labels = {"labels": {"task_name": task}}
    return {
        "insertId": number,
        "timestamp": stamp,
        "textPayload": text,
        "resource": labels,
    }


def test_each_line_of_the_log_is_shown_once(attempts, capfd):
    attempt = attempts(**GANG).new()
    one, late = entry("a", 9, "one"), entry("b", 5, "late\nmore", "workerpool1-0")
    session = Session((200, [one]), (0, []), (503, []), (200, [late, one]), (403, []))
    log = logs.Logs(session, "p", "7", clock=iter(range(0, 100, 10)).__next__)
    shown = [line for _ in range(6) for line in log.new_lines(attempt.tasks)]
    chief, worker = attempt.tasks
    assert shown == [(chief, "one"), (worker, "late"), (worker, "more")]
    assert 'timestamp>="2026-11-23T03:59:09Z"' in session.asked[1]["filter"]
    assert len(session.asked) == 5  # not once more after the 403
    assert "gcloud logging read" in capfd.readouterr().err


def test_image_with_other_code_is_rejected(attempts, tmp_path):
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "model.py").write_text("def build_model(context): pass")
    mine = attempts(strategy="auto")
    mine._spec = dataclasses.replace(mine._spec, folder=str(tmp_path / "flights"))
    attempt = mine.new()
    code = fingerprint.fingerprint(str(tmp_path / "flights"), "model")
    remote_task.reject_other_code(attempt, {CODE_VARIABLE: code}, "vertex")
    (tmp_path / "flights" / "model.py").write_text("build_model = None")
    with pytest.raises(UserError, match="strategos image build"):
        remote_task.reject_other_code(attempt, {CODE_VARIABLE: code}, "vertex")
