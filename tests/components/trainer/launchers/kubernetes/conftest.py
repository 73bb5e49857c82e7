"""A server with the paths of Kubernetes' API, for the real client."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.parse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from strategos.components.trainer.distribution.environment import Task
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


class Declared(NamedTuple):
    """A pod as an object declares it."""

    name: str
    address: str
    task: Task
    again: bool
    container: dict


def declared(job):
    """The pods of a TFJob or a JobSet, with names as Kubernetes chooses them."""
    name, spec = job["metadata"]["name"], job["spec"]
    for key, part in spec.get("tfReplicaSpecs", {}).items():
        (container,) = part["template"]["spec"]["containers"]
        again = part["restartPolicy"] == "OnFailure"
        for index in range(part["replicas"]):
            pod, task = f"{name}-{key.lower()}-{index}", Task(key.lower(), index)
            yield Declared(pod, f"{pod}:2222", task, again, container)
    for part in spec.get("replicatedJobs", ()):
        inside = part["template"]["spec"]["template"]["spec"]
        (container,), again = inside["containers"], inside["restartPolicy"] != "Never"
        for index in range(part["template"]["spec"]["completions"]):
            pod, task = f"{name}-{part['name']}-0-{index}", Task(part["name"], index)
            address = f"{pod}.{name}:2222"
            yield Declared(f"{pod}-abcde", address, task, again, container)


class Cluster(Api):
    """Runs a process for each pod, as the operators and kubelet do with these pods.

    The pods share a folder for temporary files, and nothing else but an object store.
    No machine has a place for the tasks in `gone`.
    """

    def __init__(self, scratch, free_ports):
        super().__init__()
        self.scratch, self.processes = scratch, defaultdict(dict)
        self.free_ports, self.gone, self._closed = free_ports, set(), False

    def answer(self, method, path, query, body):
        if path == PODS:
            _, _, job = query["labelSelector"][0].partition("=")
            return 200, {"items": [_pod(*each) for each in self.processes[job].items()]}
        code, answer = super().answer(method, path, query, body)
        if method == "POST" and code == 201:
            self._begin(body)
        if method == "DELETE":
            for process in self._left(path.rpartition("/")[2]):
                process.terminate()
        return code, answer

    def kill(self, task, sig=signal.SIGKILL):
        """Ends the pod of a task of the newest job; returns its process."""
        job, pod = self._newest(task)
        process = self.processes[job][pod.name]
        process.send_signal(sig)
        return process

    def lose(self, task):
        """Kills the pod of a task, for which no machine has a place from now on."""
        self.gone.add(task)
        self.kill(task)

    def bring_back(self, task):
        """Makes place for a task, which is started in a new pod."""
        self.gone.remove(task)
        self._start(*self._newest(task))

    def _newest(self, task):
        *_, job = self.processes
        return job, next(x for x in declared(self.stored[job]) if x.task.name == task)

    def _begin(self, job):
        name, pods = job["metadata"]["name"], [*declared(job)]
        ports = self.free_ports(len(pods))
        self.places = {
            pod.address: f"127.0.0.1:{port}"
            for pod, port in zip(pods, ports, strict=True)
        }
        self.status(name, "Created", "Running")
        for pod in pods:
            self._start(name, pod)

    def _start(self, job, pod):
        self.processes[job][pod.name] = None  # waits for a machine
        if pod.task.name in self.gone:
            return
        own = self._environment(self.stored[job], pod)
        process = subprocess.Popen(
            [sys.executable, *pod.container["command"][1:]],
            env={**os.environ, **own, "TMPDIR": str(self.scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes[job][pod.name] = process
        for what in (self._collect, self._watch):
            work = {"target": what, "args": (job, pod, process)}
            threading.Thread(**work, daemon=True).start()

    def _environment(self, job, pod):
        """What kubelet and the training operator make of the declared environment."""
        found = {}
        for each in pod.container["env"]:
            value = each.get("value", str(pod.task.index))
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[each["name"]] = value
        pods = [*declared(job)]
        if "tfReplicaSpecs" in job["spec"] and len(pods) > 1:
            cluster = defaultdict(list)
            for each in pods:
                cluster[each.task.type].append(each.address)
            if job["spec"].get("enableDynamicWorker"):
                own = {pod.task.index: pod.address}
                cluster = {"worker": own if pod.task.type == "worker" else {}}
            place = {"cluster": cluster, "task": dataclasses.asdict(pod.task)}
            found["TF_CONFIG"] = json.dumps(place)
        for address, place in self.places.items():
            found = {
                k: v.replace(f'"{address}"', f'"{place}"') for k, v in found.items()
            }
        return found

    def _collect(self, _, pod, process):
        self.logs[pod.name] = lines = []
        for line in process.stdout:
            now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
            lines.append(f"{now.isoformat()}Z {line.rstrip()}")

    def _watch(self, job, pod, process):
        """The chief's success is the job's, and so is a failure for good."""
        code = process.wait()
        with contextlib.suppress(KeyError):  # deleted
            if self.stored[job]["status"]["conditions"][-1]["type"] != "Running":
                return
            if pod.again:
                if code and not self._closed:
                    self._start(job, pod)
                return
            if code or pod.task.type == "chief":
                jobset = "replicatedJobs" in self.stored[job]["spec"]
                success = "Completed" if jobset else "Succeeded"
                self.status(job, "Created", "Failed" if code else success)
        if code or pod.task.type == "chief":
            self.end(job)

    def end(self, *jobs):
        """Kills what is left of jobs, by default of all."""
        self._closed = self._closed or not jobs
        for job in jobs or [*self.processes]:
            for process in self._left(job):
                process.kill()

    def _left(self, job):
        return [process for process in self.processes[job].values() if process]


def _pod(name, process):
    metadata = {"name": name, "creationTimestamp": "2026-11-23T04:00:00Z"}
    if process is None:
        why = {"reason": "Unschedulable", "message": "0/3 nodes"}
        condition = {"type": "PodScheduled", "status": "False", **why}
        status = {"phase": "Pending", "conditions": [condition]}
        return {"metadata": metadata, "status": status}
    code = process.poll()
    phase = "Running" if code is None else "Failed" if code else "Succeeded"
    status = {"phase": phase, "containerStatuses": []}
    if code:
        state = {"terminated": {"exitCode": abs(code), "reason": "Error"}}
        found = {"name": "tensorflow", "state": state, "image": "i", "imageID": ""}
        status["containerStatuses"] = [found | {"ready": False, "restartCount": 0}]
    return {"metadata": metadata, "status": status}


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

    def make(least=None, **changes):
        return PodJobs(resource, SETTINGS | changes, "c0de", least)

    return make


@pytest.fixture
def training(make_spec, tmp_path):
    """Makes a training: `training(module, **spec)`."""

    def make(module="model", **changes):
        spec = make_spec(epochs=4, module=module, **changes)
        spec.hyperparameters["marks"] = str(tmp_path)
        key = str(Path(spec.model_dir, Path(spec.model_dir).name))
        callbacks = dataclasses.replace(spec.settings, callbacks={"csv": True})
        return dataclasses.replace(spec, checkpoint_dir=key, settings=callbacks)

    return make


@pytest.fixture
def launcher(pods, bucket, settings, make_launcher):
    """A launcher that is not started yet: `launcher(spec, name, **operation)`."""

    def start(code, *words, **streams):
        return subprocess.Popen([sys.executable, "-c", code, *words], **streams)

    def make(spec, name="tfjob", **operation):
        job = settings | {"volumes": [], "folder": f"{bucket}/jobs"}
        return make_launcher(start, name, job, spec, **operation)

    return make
