"""Custom jobs by Google's real client, on a fake of Vertex AI that runs real tasks.

The fake parses requests as the service's own types. It starts a process for each
replica of each worker pool with the environment that Vertex AI documents, collects
their output as Cloud Logging does, and kills them when the job is cancelled or a
replica fails. The tasks share nothing but an object store.
"""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import os
import re
import signal
import threading
import urllib.parse

import pytest

from strategos.components.trainer.launchers import vertex
from strategos.components.trainer.launchers.jobs.vertex import logs

PARENT = "projects/p/locations/r1"
SETTINGS = {
    "project": "p",
    "region": "r1",
    "endpoint": "http://127.0.0.1:1",
    "service_account": "a@p.iam.gserviceaccount.com",
    "image": "registry/strategos:1",
    "machine_type": "n1-standard-4",
    "accelerator": None,
    "time_limit": None,
    "pending_timeout": 60.0,
    "context": "/nowhere",
    "workload": "/workload",
}
_REPLICA = """
import os, runpy, sys
os.dup2(1, 2)  # a container's log has both
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class Service(http.server.ThreadingHTTPServer):
    """Vertex AI and Cloud Logging in project p.

    `start` starts a process of Python, on one of `free_ports`; without it, jobs stay
    in their state. `fails` is a list of (status, message) for the coming requests; -1
    answers as usual, but the answer is lost.
    """

    daemon_threads = True

    def __init__(self, start=None, free_ports=None, is_capacity=True):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.jobs, self.entries, self.replicas = {}, [], {}
        self.fails, self.start, self.is_capacity = [], start, is_capacity
        self.free_ports = free_ports
        serving = {"target": self.serve_forever, "args": (0.02,)}
        threading.Thread(**serving, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that gave up is no error."""

    def answer(self, method, path, query, body):
        from google.cloud import aiplatform_v1 as api

        status, text = self.fails.pop(0) if self.fails else (200, "")
        if status not in (200, -1):
            return status, {"error": {"code": status, "message": text}}
        if path == "/v2/entries:list":
            number = re.search(r'job_id="(\d+)"', json.loads(body)["filter"])[1]
            return 200, {"entries": [e for n, e in [*self.entries] if n == number]}
        where = path.removeprefix(f"/v1/{PARENT}/customJobs")
        if method == "GET":
            label, value = re.fullmatch(
                r'labels\.(\S+)="(.*)"', query["filter"]
            ).groups()
            found = [j for j in self.jobs.values() if j.labels.get(label) == value]
            plain = [json.loads(api.CustomJob.to_json(job)) for job in found]
            return 200, {"customJobs": plain}
        if where.endswith(":cancel"):
            number = where[1 : -len(":cancel")]
            if self._has_ended(self.jobs[number]):
                return 400, {"error": {"code": 400, "message": "the job has ended"}}
            self._cancel(number)
            return 200, {}
        job = api.CustomJob.from_json(body)  # rejects unknown fields
        number = str(len(self.jobs) + 1)
        job.name, job.state = f"{PARENT}/customJobs/{number}", "JOB_STATE_PENDING"
        job.create_time = datetime.datetime.now(datetime.timezone.utc)
        self.jobs[number] = job
        self.log(number, "service", "Waiting for job to be provisioned.")
        if self.start and self.is_capacity:
            self._begin(number)
        return (0 if status == -1 else 200), json.loads(api.CustomJob.to_json(job))

    def log(self, number, task, text):
        stamp = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        entry = {"insertId": f"i{len(self.entries)}", "jsonPayload": {"message": text}}
        entry |= {"timestamp": f"{stamp.isoformat()}Z"}
        entry["resource"] = {"labels": {"task_name": task, "job_id": number}}
        self.entries.append((number, entry))

    def live(self):
        return [n for n, j in self.jobs.items() if not self._has_ended(j)]

    def _has_ended(self, job):
        return job.state.name.endswith(("SUCCEEDED", "FAILED", "CANCELLED"))

    def _begin(self, number):
        job = self.jobs[number]
        pools = [p for p in job.job_spec.worker_pool_specs]
        names = {f"workerpool{n}": p.replica_count for n, p in enumerate(pools)}
        ports = iter(self.free_ports(sum(names.values())))
        cluster = {
            name: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for name, count in names.items()
            if count
        }
        self.replicas[number] = {}
        for name, pool in zip(names, pools, strict=True):
            for index in range(names[name]):
                spec = pool.container_spec
                task = {"type": name, "index": index}
                place = {"cluster": cluster, "environment": "cloud", "task": task}
                variables = {each.name: each.value for each in spec.env}
                python, module, *rest = *spec.command[1:], *spec.args
                assert spec.command[0] == "python" and python == "-m"
                environ = {**variables, "CLUSTER_SPEC": json.dumps(place)}
                process = self.start(_REPLICA, module, *rest, **environ)
                self.replicas[number][f"{name}-{index}"] = process
        job.state = "JOB_STATE_RUNNING"
        job.start_time = datetime.datetime.now(datetime.timezone.utc)
        for name, process in self.replicas[number].items():
            for what in (self._collect, self._watch):
                threading.Thread(
                    target=what, args=(number, name, process), daemon=True
                ).start()

    def _collect(self, number, name, process):
        for line in process.stdout:
            self.log(number, name, line.decode().rstrip())

    def _watch(self, number, name, process):
        """A replica's failure is the job's, and so is the primary's success."""
        code = process.wait()
        job = self.jobs[number]
        if self._has_ended(job) or not (code or name == "workerpool0-0"):
            return
        if job.state.name == "JOB_STATE_CANCELLING":
            state = "JOB_STATE_CANCELLED"
        elif code:
            state = "JOB_STATE_FAILED"
            shown = code if code > 0 else 128 - code
            job.error.code, job.error.message = (
                3,
                (f"The replica {name} exited with a non-zero status of {shown}."),
            )
        else:
            state = "JOB_STATE_SUCCEEDED"
        self.end(number)
        job.end_time = datetime.datetime.now(datetime.timezone.utc)
        job.state = state

    def _cancel(self, number):
        self.jobs[number].state = "JOB_STATE_CANCELLING"
        for process in self.replicas.get(number, {}).values():
            process.terminate()
        if not self.replicas.get(number):
            self.jobs[number].state = "JOB_STATE_CANCELLED"

    def end(self, number):
        for process in self.replicas[number].values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)


class _Handler(http.server.BaseHTTPRequestHandler):
    def _do(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, value = self.server.answer(self.command, url.path, query, body)
        if not status:
            return
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    do_GET = do_POST = _do

    def log_message(self, *_):
        pass


@pytest.fixture
def service(monkeypatch):
    """The service without processes."""
    import google.auth
    from google.auth.credentials import AnonymousCredentials

    mine = (AnonymousCredentials(), "p")
    monkeypatch.setattr(google.auth, "default", lambda **_: mine)
    with Service() as made:
        monkeypatch.setattr(logs, "URL", f"{made.url}/v2/entries:list")
        yield made
        made.shutdown()


@pytest.fixture
def jobs(service):
    """The launcher's side of it: `jobs(**settings)`."""

    def make(**settings):
        given = {**SETTINGS, "endpoint": service.url, **settings}
        return vertex.CustomJobs(given, "c0de")

    return make


@pytest.fixture(scope="module")
def settings():
    """Settings of a job, as in `Operation.job`."""
    return SETTINGS


@pytest.fixture(scope="module")
def cloud(warm_tensorflow, free_ports):
    """The service with real processes."""
    with Service(warm_tensorflow.script, free_ports) as made:
        yield made
        for number in made.live():
            made.end(number)
        made.shutdown()
