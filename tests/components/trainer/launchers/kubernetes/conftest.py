"""A server with the paths of Kubernetes' API, for the real client."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.parse
from collections import defaultdict

import pytest
import yaml

from strategos.components.trainer.launchers.jobs.kubernetes.scheduler import PodJobs
from strategos.components.trainer.launchers.tfjob import TFJOB

SETTINGS = {
    "image": "registry/strategos:1",
    "namespace": "team",
    "service_account": None,
    "volumes": [{"claim": "root", "path": "/mnt/root"}],
    "folder": None,
    "secrets": [],
    "config_maps": [],
    "context": None,
    "workload": "/workload",
    "cpu": "2",
    "memory": None,
    "accelerator": {"type": "nvidia.com/gpu", "count": 1},
    "time_limit": None,
    "pending_timeout": 60.0,
}
OBJECTS = {
    "tfjob": "/apis/kubeflow.org/v1/namespaces/team/tfjobs",
    "kubernetes": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets",
}
PODS = "/api/v1/namespaces/team/pods"


class Api(http.server.ThreadingHTTPServer):
    """Stores objects as an apiserver does; the status and the pods are a test's."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stored, self.pods, self.refusal = {}, [], None
        self.logs, self.asked = {}, []
        serving = {"target": self.serve_forever, "args": (0.02,)}
        threading.Thread(**serving, daemon=True).start()

    def status(self, name, *conditions):
        found = [{"type": c, "status": "True", "reason": c} for c in conditions]
        self.stored[name]["status"] = {"conditions": found}

    def answer(self, method, path, query, body):
        path = path.replace("/namespaces/other/", "/namespaces/team/")
        base = next((p for p in OBJECTS.values() if path.startswith(p)), None)
        if self.refusal:
            return self.refusal
        if path == PODS:
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": self.pods}
        if path.endswith("/log"):
            return self._log(path.split("/")[-2], query)
        if base is None:
            return 404, {"message": f"no such path: {path}"}
        name = path.removeprefix(base).strip("/")
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.stored:
                return 409, {"message": f'tfjobs "{name}" already exists'}
            self.stored[name] = body
            return 201, body
        if method == "GET" and not name:
            key, _, value = query["labelSelector"][0].partition("=")
            items = [
                each
                for each in self.stored.values()
                if each["metadata"]["labels"].get(key) == value
            ]
            return 200, {"items": items}
        if method == "PATCH" and name in self.stored:
            self.stored[name]["metadata"] |= body["metadata"]
            return 200, self.stored[name]
        found = self.stored.pop(name, None) if method == "DELETE" else None
        if found is None:
            return 404, {"message": f'tfjobs "{name}" not found'}
        return 200, {}

    def _log(self, pod, query):
        """As kubelet does: lines by time; a status in place of a log is answered."""
        self.asked.append((pod, query))
        assert query["container"] == ["tensorflow"] and query["timestamps"] == ["true"]
        since = query.get("sinceTime", [""])[0].rstrip("Z")
        lines = self.logs.get(pod, 404)
        if isinstance(lines, int):
            return lines, {"message": "no"}
        return 200, "".join(f"{line}\n" for line in lines if line >= since)


class Cluster(Api):
    """Runs a process for each pod, as the operator does with these pods.

    The pods share a folder for temporary files, and nothing else but an object store.
    """

    def __init__(self, scratch, free_ports):
        super().__init__()
        self.scratch, self.processes = scratch, defaultdict(dict)
        self.free_ports = free_ports

    def answer(self, method, path, query, body):
        if path == PODS:
            _, _, job = query["labelSelector"][0].partition("=")
            return 200, {"items": [_pod(*each) for each in self.processes[job].items()]}
        code, answer = super().answer(method, path, query, body)
        if method == "POST" and code == 201:
            self._begin(body)
        if method == "DELETE":
            for process in self.processes[path.rpartition("/")[2]].values():
                process.terminate()
        return code, answer

    def _begin(self, job):
        name, specs = job["metadata"]["name"], job["spec"]["tfReplicaSpecs"]
        tasks = [
            (kind.lower(), index)
            for kind, spec in specs.items()
            for index in range(spec["replicas"])
        ]
        addresses = defaultdict(list)
        for (kind, _), port in zip(tasks, self.free_ports(len(tasks)), strict=True):
            addresses[kind].append(f"127.0.0.1:{port}")
        for kind, index in tasks:
            place = {"cluster": addresses, "task": {"type": kind, "index": index}}
            environ = {} if len(tasks) == 1 else {"TF_CONFIG": json.dumps(place)}
            spec = next(spec for key, spec in specs.items() if key.lower() == kind)
            (container,) = spec["template"]["spec"]["containers"]
            environ |= {each["name"]: each["value"] for each in container["env"]}
            process = subprocess.Popen(
                [sys.executable, *container["command"][1:]],
                env={**os.environ, **environ, "TMPDIR": str(self.scratch)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self.processes[name][f"{name}-{kind}-{index}"] = process
        self.status(name, "Created", "Running")
        for pod, process in self.processes[name].items():
            for what in (self._collect, self._watch):
                work = {"target": what, "args": (name, pod, process)}
                threading.Thread(**work, daemon=True).start()

    def _collect(self, _, pod, process):
        self.logs[pod] = []
        for line in process.stdout:
            now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
            self.logs[pod].append(f"{now.isoformat()}Z {line.rstrip()}")

    def _watch(self, job, pod, process):
        """The chief's success is the job's, and so is any failure."""
        code = process.wait()
        if code or "-chief-" in pod:
            with contextlib.suppress(KeyError):  # deleted
                if self.stored[job]["status"]["conditions"][-1]["type"] == "Running":
                    self.status(job, "Created", "Failed" if code else "Succeeded")
            self.end(job)

    def end(self, *jobs):
        """Kills what is left of jobs, by default of all."""
        for job in jobs or [*self.processes]:
            for process in self.processes[job].values():
                process.kill()


def _pod(name, process):
    code = process.poll()
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    status = {"phase": phase, "containerStatuses": []}
    if code:
        state = {"terminated": {"exitCode": abs(code), "reason": "Error"}}
        found = {"name": "tensorflow", "state": state, "image": "i", "imageID": ""}
        status["containerStatuses"] = [found | {"ready": False, "restartCount": 0}]
    return {"metadata": {"name": name}, "status": status}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        query = urllib.parse.parse_qs(url.query)
        code, answer = self.server.answer(self.command, url.path, query, body)
        self.send_response(code)
        is_text = isinstance(answer, str)
        kind = "text/plain" if is_text else "application/json"
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write((answer if is_text else json.dumps(answer)).encode())

    do_POST = do_PATCH = do_DELETE = do_GET

    def log_message(self, *_):
        pass


def _kubeconfig(server, path):
    """Writes a kubeconfig that names a server; returns its path."""
    url = f"http://127.0.0.1:{server.server_port}"
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def api(tmp_path, monkeypatch):
    """The server, which the kubeconfig of this process names."""
    server = Api()
    monkeypatch.setenv("KUBECONFIG", _kubeconfig(server, tmp_path / "kubeconfig"))
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def pods(tmp_path_factory, environment, free_ports):
    """The server with processes, which the kubeconfig of all processes names."""
    folder = tmp_path_factory.mktemp("pods")
    (folder / "tmp").mkdir()
    server = Cluster(folder / "tmp", free_ports)
    environment.setenv("KUBECONFIG", _kubeconfig(server, folder / "kubeconfig"))
    for name in ("HTTP_PROXY", "http_proxy"):
        environment.delenv(name, raising=False)
    yield server
    server.end()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def settings():
    """Settings of pods, as in `Operation.job`."""
    return SETTINGS


@pytest.fixture
def resource():
    """The kind of the objects."""
    return TFJOB


@pytest.fixture
def jobs(api, resource):
    """The launcher's side of it: `jobs(**settings)`."""

    def make(**changes):
        return PodJobs(resource, SETTINGS | changes, "c0de")

    return make
