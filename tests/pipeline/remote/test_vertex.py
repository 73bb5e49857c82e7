"""Runs and schedules on Vertex AI: Google's clients against a strict fake of REST."""

from __future__ import annotations

import datetime
import http.server
import json
import threading
import urllib.parse

import pytest
import yaml

from strategos.components import events
from strategos.components.errors import UserError
from strategos.pipeline import cli
from strategos.pipeline.config import loading
from strategos.pipeline.remote import watch
from strategos.pipeline.remote.retries import Retries
from strategos.pipeline.remote.service import Log

PARENT = "projects/p/locations/r1"
SPEC = {"root": {"dag": {"tasks": {"Trainer": {}, "Resolve": {}}}}}
CAUSE = "The replica workerpool0-0 exited with a non-zero status of 3."


class Fake(http.server.ThreadingHTTPServer):
    """Jobs and schedules; bodies are parsed as the real types.

    `fails[METHOD path]` is a list of statuses for the coming requests: 0 closes the
    connection, None answers as usual, -1 answers as usual but the answer is lost.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked, self.fails, self.tokens = [], {}, []
        self.jobs, self.schedules, self.tasks = {}, {}, []
        self.state = "PIPELINE_STATE_RUNNING"

    def handle_error(self, request, client_address):
        """A client that gave up is no error."""

    def answer(self, method, path, query, body):
        from google.cloud import aiplatform_v1 as api

        where = path.removeprefix(f"/v1/{PARENT}/")
        self.asked.append(f"{method} {where}")
        lost = False
        for key, statuses in self.fails.items():
            if f"{method} {where}".startswith(key) and statuses:
                status = statuses.pop(0)
                lost = status == -1
                if status not in (None, -1):
                    return status, {"error": {"code": status, "message": "not\ntoday"}}
        kind, _, name = where.partition("/")
        if path.endswith(f"{PARENT}/operations/1"):
            done = {"@type": "type.googleapis.com/google.protobuf.Empty"}
            return 200, {
                "name": f"{PARENT}/operations/1",
                "done": True,
                "response": done,
            }
        if kind == "pipelineJobs":
            found = self._job(api, method, name, query, body)
        else:
            found = self._schedule(api, method, name, query, body)
        return (0, {}) if lost else found

    def _job(self, api, method, name, query, body):
        if method == "POST" and name.endswith(":cancel"):
            self.state = "PIPELINE_STATE_CANCELLED"
            return 200, {}
        if method == "POST":
            job_id = query["pipelineJobId"]
            if job_id in self.jobs:
                return 409, {"error": {"code": 409, "message": "exists"}}
            self.jobs[job_id] = api.PipelineJob.from_json(body)
            self.jobs[job_id].name = f"{PARENT}/pipelineJobs/{job_id}"
            return 200, json.loads(api.PipelineJob.to_json(self.jobs[job_id]))
        if not name:
            return 200, {}
        if name not in self.jobs:
            return 404, {"error": {"code": 404, "message": f"no job {name}"}}
        found = json.loads(api.PipelineJob.to_json(self.jobs[name]))
        time = {"createTime": "2026-11-23T04:00:00Z", "endTime": "2026-11-23T04:01:00Z"}
        details = {"taskDetails": self.tasks}
        return 200, {**found, **time, "state": self.state, "jobDetail": details}

    def _schedule(self, api, method, name, query, body):
        if method == "POST":
            number = f"s{len(self.schedules) + 1}"
            made = api.Schedule.from_json(body)
            made.name, made.state = f"{PARENT}/schedules/{number}", "ACTIVE"
            made.next_run_time = datetime.datetime(
                2026, 11, 24, 1, 30, tzinfo=datetime.timezone.utc
            )
            self.schedules[number] = made
            return 200, json.loads(api.Schedule.to_json(made))
        if method == "DELETE":
            if self.schedules.pop(name, None) is None:
                return 404, {"error": {"code": 404, "message": "no schedule"}}
            return 200, {"name": f"{PARENT}/operations/1"}
        assert query["filter"] == 'display_name="flights"'
        found = [json.loads(api.Schedule.to_json(s)) for s in self.schedules.values()]
        return 200, {"schedules": found}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.append(self.headers.get("Authorization"))
        status, value = self.server.answer(self.command, url.path, query, body)
        if not status:
            self.close_connection = True
            return
        text = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _do

    def log_message(self, *_):
        pass


def task(name, state, **fields):
    times = {"startTime": "2026-11-23T04:00:10Z", "endTime": "2026-11-23T04:00:30Z"}
    return {"taskName": name, "state": state, **times, **fields}


@pytest.fixture
def cloud():
    with Fake() as fake:
        threading.Thread(target=fake.serve_forever, args=(0.01,), daemon=True).start()
        yield fake
        fake.shutdown()


@pytest.fixture
def overlay(workload):
    """Writes the overlay for a URL; its path."""

    def write(url):
        section = {"project": "p", "region": "r1", "image": "x", "root": "gs://b/root"}
        sections = {
            "vertex": {**section, "endpoint": url, "service_account": "a@p.iam"},
            "pusher": {"to": "gs://models/flights"},
            "schedule": {"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin"},
        }
        workload.with_name("vertex.yaml").write_text(yaml.safe_dump(sections))
        return str(workload.with_name("vertex.yaml"))

    return write


@pytest.fixture
def connected(workload, overlay, clock):
    """The service at a URL: `connected(url, seconds)`."""
    from google.auth.credentials import AnonymousCredentials

    from strategos.pipeline.remote import vertex

    def connect(url, seconds=60.0):
        config = loading.load(workload, [overlay(url)]).config
        retries = Retries(clock=clock, sleep=clock.sleep)
        return vertex.VertexPipelines(config, AnonymousCredentials(), retries, seconds)

    return connect


@pytest.fixture
def service(connected, cloud):
    return connected(cloud.url)


@pytest.fixture
def compiled(tmp_path):
    file = tmp_path / "compiled.json"
    runtime = {"gcsOutputDirectory": "gs://b/root/flights"}
    job = {"displayName": "flights", "pipelineSpec": SPEC, "runtimeConfig": runtime}
    file.write_text(json.dumps(job))
    return file


def follow(service, run_id, clock, tmp_path):
    events.open_sink(str(tmp_path / "events"))
    try:
        return watch.follow(
            service, run_id, runner="vertex", clock=clock, sleep=clock.sleep
        )
    finally:
        events.open_sink(None)


def test_a_job_is_created_under_an_id_of_ours(service, cloud, compiled):
    run_id = service.submit(compiled, "flights")
    assert run_id.startswith("flights-20")
    (job,) = cloud.jobs.values()
    assert job.service_account == "a@p.iam"
    assert job.runtime_config.gcs_output_directory == "gs://b/root/flights"
    assert f"/r1/pipelines/runs/{run_id}?project=p" in service.link(run_id)


@pytest.mark.parametrize(
    ("statuses", "waits"), [([0], [1]), ([500, 503], [1, 2]), ([-1], [1]), ([429], [1])]
)
def test_a_creation_is_sent_again_because_its_id_is_known(
    service, cloud, compiled, clock, statuses, waits
):
    """-1: the job was created, but the answer was lost."""
    cloud.fails["POST pipelineJobs"] = statuses
    run_id = service.submit(compiled, "flights")
    assert list(cloud.jobs) == [run_id]
    assert clock.slept == waits


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "Correct what the message names"),
        (403, "roles/aiplatform.user"),
        (404, "vertex.region"),
        (409, "try again"),
    ],
)
def test_a_rejected_request_is_one_message(
    service, cloud, compiled, clock, status, expected
):
    cloud.fails["POST pipelineJobs"] = [status]
    with pytest.raises(UserError) as caught:
        service.submit(compiled, "flights")
    message, _, remedy = str(caught.value).partition("\n")
    where = f"Vertex AI at {cloud.url}, {PARENT}: it answers {status}: "
    assert message.startswith(where) and "not today" in message
    assert expected in remedy
    assert cloud.jobs == {} and clock.slept == []


def test_rejected_credentials_are_named(service, cloud, compiled):
    cloud.fails["POST pipelineJobs"] = [401]
    with pytest.raises(UserError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        service.submit(compiled, "flights")


def test_a_service_that_is_not_there_is_reported(connected, compiled, clock):
    service = connected("http://127.0.0.1:1")
    with pytest.raises(UserError, match=r"cannot be reached: .*refused"):
        service.check()
    assert clock.slept == []  # a check asks once
    with pytest.raises(UserError, match=r"cannot be reached"):
        service.submit(compiled, "flights")
    assert clock.slept == [1, 2, 4, 8, 16]


def test_an_answer_that_does_not_come_is_given_up(connected, cloud, monkeypatch):
    hangs = threading.Event()
    monkeypatch.setattr(cloud, "answer", lambda *_: (hangs.wait(60) and 0, {}))
    with pytest.raises(UserError, match=r"took too long: .*=0.1"):
        connected(cloud.url, 0.1).check()
    hangs.set()


def test_another_service_is_told_from_vertex(service, cloud, monkeypatch):
    monkeypatch.setattr(cloud, "answer", lambda *_: (200, {"kfp": True}))
    service.check()  # fields of later versions are no error
    monkeypatch.setattr(cloud, "answer", lambda *_: (200, "<html>"))
    with pytest.raises(UserError, match="not one of this API"):
        service.check()


def test_a_watch_breaks_off_comes_back_and_ends_with_the_exit_code_of_the_step(
    service, cloud, compiled, clock, tmp_path
):
    run_id = service.submit(compiled, "flights")
    job = {"containerDetail": {"mainJob": f"{PARENT}/customJobs/77"}}
    error = {"error": {"code": 9, "message": CAUSE}, "executorDetail": job}
    cloud.tasks = [
        task("Resolve", "SKIPPED"),
        task("Trainer", "FAILED", **error),
        task("flights", "FAILED"),  # the pipeline itself
    ]
    cloud.state = "PIPELINE_STATE_FAILED"
    cloud.fails[f"GET pipelineJobs/{run_id}"] = [0, 503, 500, 429]
    run = follow(service, run_id, clock, tmp_path)
    assert clock.slept == [1, 2, 4, 8]
    assert {n: t.state for n, t in run.tasks.items()} == {
        "Resolve": "cached",
        "Trainer": "failed",
    }
    log = service.log(run, "Trainer")
    assert log.exit_code == 3 and 'job_id="77"' in log.command
    cloud.fails[f"GET pipelineJobs/{run_id}"] = [403]
    with pytest.raises(UserError, match="answers 403"):
        follow(service, run_id, clock, tmp_path)
    service.terminate(run_id)
    assert service.run(run_id).state == "canceled"
    with pytest.raises(UserError, match="answers 404: no job none"):
        service.run("none")


def test_the_table_has_what_the_steps_have_recorded(
    service, cloud, compiled, bucket, bucket_client
):
    from strategos.pipeline import remote_command

    properties = {"strategy": "one_device", "steps": 7.0}
    model = {"type": "Model", "uri": "gs://b/model", "properties": properties}
    content = {"inputs": [], "outputs": [model], "warnings": ["few rows"]}
    key = "root/17/job/Trainer_-4/record"
    bucket_client.put_object(
        Bucket="bucket", Key=f"{key}/record.json", Body=json.dumps(content).encode()
    )
    artifacts = [{"name": "a", "uri": f"{bucket}/{key}"}]
    outputs = {"record": {"artifacts": artifacts}}
    cloud.tasks = [
        task("Resolve", "SUCCEEDED"),
        task("Trainer", "SKIPPED", outputs=outputs),
    ]
    ended = service.run(service.submit(compiled, "flights"))
    assert ended.tasks["Trainer"].record == f"{bucket}/{key}"
    run = remote_command._as_run(service, ended, "vertex", "finished", Log())
    records = {"Trainer": ended.tasks["Trainer"].record}
    found = remote_command._with_facts(service._config, run, records)
    assert found.trainer == {"strategy": "one_device", "steps": 7}
    assert found.warnings == (("Trainer", "few rows"),)
    gone = {"Trainer": f"{bucket}/elsewhere"}
    assert remote_command._with_facts(service._config, run, gone) == run


def test_commands_run_schedule_and_report(
    cloud, workload, overlay, capsys, monkeypatch
):
    """As users call them, with the application's default credentials."""
    import google.auth as google_auth
    from google.oauth2.credentials import Credentials

    default = google_auth.default
    mine = (Credentials(token="secret"), "p")
    monkeypatch.setattr(google_auth, "default", lambda *_, **__: mine)
    place = ["--overlay", overlay(cloud.url)]
    cloud.state = "PIPELINE_STATE_FAILED"
    cloud.tasks = [
        task("Resolve", "SUCCEEDED"),
        task("EvaluationGate", "FAILED", error={"code": 9, "message": CAUSE}),
    ]
    run = ["run", str(workload), *place, "--runner", "vertex"]
    assert cli.main([*run, "--wait"]) == 3
    shown = capsys.readouterr()
    assert "flights  not blessed in 1 min 00 s" in shown.out
    assert f"EvaluationGate {CAUSE}" in " ".join(shown.out.split())
    assert "secret" not in shown.out + shown.err
    assert cloud.tokens[-1] == "Bearer secret"
    (job,) = cloud.jobs.values()
    assert "Resolve" in dict(job.pipeline_spec["components"])

    schedule = ["schedule", "create", str(workload), *place, "--target", "vertex"]
    assert cli.main(schedule) == 0 and cli.main(schedule) == 0
    (made,) = cloud.schedules.values()
    assert made.cron == "TZ=Europe/Berlin 30 2 * * 1,2,3,4,5"
    assert made.max_concurrent_run_count == 1
    assert "replaced s1" in capsys.readouterr().out
    schedule[1] = "list"
    assert cli.main(schedule) == 0
    assert capsys.readouterr().out == (
        f"s2  {made.cron}  next run 2026-11-24 02:30:00 CET\n"
    )
    schedule[1] = "delete"
    assert cli.main(schedule) == 0 and not cloud.schedules

    monkeypatch.setattr(google_auth, "default", default)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none")
    assert cli.main(run) == 1
    assert "GOOGLE_APPLICATION_CREDENTIALS" in capsys.readouterr().err
