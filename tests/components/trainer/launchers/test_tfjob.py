"""TFJobs by the real client of Kubernetes, against a server with the API's paths."""

from __future__ import annotations

import dataclasses
import http.server
import json
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

import pytest
import yaml

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import tfjob
from strategos.components.trainer.launchers.jobs import staging
from strategos.components.trainer.launchers.jobs.scheduler import UnreachableError

SETTINGS = {
    "image": "registry/strategos:1",
    "namespace": "team",
    "service_account": None,
    "volumes": [{"claim": "root", "path": "/mnt/root"}],
    "folder": None,
    "cpu": "2",
    "memory": None,
    "accelerator": {"type": "nvidia.com/gpu", "count": 1},
    "time_limit": None,
    "pending_timeout": 60.0,
}
TFJOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
PODS = "/api/v1/namespaces/team/pods"


class Api(http.server.ThreadingHTTPServer):
    """Stores TFJobs as an apiserver does; the status and the pods are a test's."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stored, self.pods, self.refusal = {}, [], None
        serving = {"target": self.serve_forever, "args": (0.02,)}
        threading.Thread(**serving, daemon=True).start()

    def status(self, name, *conditions):
        found = [{"type": c, "status": "True", "reason": c} for c in conditions]
        self.stored[name]["status"] = {"conditions": found}

    def answer(self, method, path, query, body):
        path = path.replace("/namespaces/other/", "/namespaces/team/")
        name = path.removeprefix(TFJOBS).strip("/")
        if self.refusal:
            return self.refusal
        if path == PODS:
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": self.pods}
        if not path.startswith(TFJOBS):
            return 404, {"message": f"no such path: {path}"}
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
        found = self.stored.pop(name, None) if method == "DELETE" else None
        if found is None:
            return 404, {"message": f'tfjobs "{name}" not found'}
        return 200, {}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "null")
        query = urllib.parse.parse_qs(url.query)
        code, answer = self.server.answer(self.command, url.path, query, body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_POST = do_DELETE = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def api(tmp_path, monkeypatch):
    """The server, which the kubeconfig of this process names."""
    server = Api()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
            }
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}
        ],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.shutdown()
    server.server_close()


def pod(waiting=None, ended=None, scheduled=None):
    phase = "Failed" if ended else "Pending" if waiting or scheduled else "Running"
    status = {"containerStatuses": [], "phase": phase}
    state = {"waiting": waiting} if waiting else {"terminated": ended}
    if waiting or ended:
        found = {"name": "tensorflow", "state": state, "image": "i", "imageID": ""}
        found |= {"ready": False, "restartCount": 0}
        status["containerStatuses"] = [found]
    if scheduled:
        found = {"type": "PodScheduled", "status": "False", **scheduled}
        status["conditions"] = [found]
    return {"metadata": {"name": "t-worker-0"}, "status": status}


def test_training_becomes_a_tfjob_of_its_tasks(api, attempts):
    attempt = attempts(strategy="parameter_server", workers=3).new()
    jobs = tfjob.TFJobs(SETTINGS)
    job = jobs.submit("strategos-1", attempt)
    assert jobs.submit("strategos-1", attempt).id == job.id  # 409: it is this one
    (found,) = api.stored.values()
    assert found["metadata"]["name"] == job.id
    specs = found["spec"]["tfReplicaSpecs"]
    assert job.id.startswith("strategos-1-0001-")
    counts = {kind: each["replicas"] for kind, each in specs.items()}
    assert counts == {"Chief": 1, "Worker": 3, "PS": 1}
    assert {each["restartPolicy"] for each in specs.values()} == {"Never"}
    inside = specs["Worker"]["template"]["spec"]
    (container,) = inside["containers"]
    assert (container["name"], container["image"]) == ("tensorflow", SETTINGS["image"])
    assert container["command"][-1] == str(attempt.folder)
    assert container["volumeMounts"][0]["mountPath"] == "/mnt/root"
    assert inside["volumes"][0]["persistentVolumeClaim"] == {"claimName": "root"}
    (again,) = jobs.jobs("strategos-1")
    assert (again.id, again.folder) == (job.id, str(attempt.folder))
    assert jobs.jobs("strategos-2") == []
    jobs.cancel(job)
    jobs.cancel(job)  # 404: it is gone already
    assert not api.stored


def test_tfjob_of_a_step_is_deleted_with_its_pod(api, attempts, monkeypatch):
    def submitted(namespace):
        jobs = tfjob.TFJobs(SETTINGS | {"namespace": namespace})
        attempt = attempts(strategy="auto").new(jobs.launcher_timeout)
        job = jobs.submit("t", attempt)
        found = api.stored[job.id]["metadata"].get("ownerReferences")
        return found, attempt.launcher_timeout

    assert submitted("team") == (None, None)  # a launcher may come back at any time
    monkeypatch.setenv("KFP_POD_NAME", "flights-7-1234")
    monkeypatch.setenv("KFP_POD_UID", "a1b2")
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "flights-7-1234", "uid": "a1b2"}
    assert submitted("team") == ([pod], 600.0)
    assert submitted("other") == (None, 600.0)  # Kubernetes would delete it at once


def test_job_ends_without_a_launcher(attempts, tmp_path):
    mine = attempts(strategy="auto")
    code = (
        "import sys, pathlib\n"
        "from strategos.components.trainer.launchers.jobs import attempt, task\n"
        "task.end_if_unwanted(attempt.Attempt(pathlib.Path(sys.argv[1])))"
    )

    def start(attempt):
        words = [sys.executable, "-c", code, str(attempt.folder)]
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

    with start(mine.new(launcher_timeout=1.0)) as alone:
        assert "no launcher for 1 s" in alone.communicate(timeout=60)[1]
        assert alone.returncode == -signal.SIGTERM
    attempt = mine.new()  # without a time-out: it goes on until it is revoked
    with start(attempt) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
        attempt.revoke()
        assert waiting.wait(60) == -signal.SIGTERM
        assert waiting.stderr.read() == ""


@pytest.mark.parametrize(
    "conditions, pods, phase, state",
    [
        (
            [],
            [],
            "waiting",
            "waiting (Kubeflow's training operator has not handled it yet)",
        ),
        (["Created"], [], "waiting", "waiting"),
        (
            ["Created"],
            [pod(scheduled={"reason": "Unschedulable", "message": "0/3 nodes"})],
            "waiting",
            "waiting (t-worker-0: Unschedulable 0/3 nodes)",
        ),
        (
            ["Created"],
            [pod(waiting={"reason": "InvalidImageName", "message": "bad"})],
            "waiting",
            "waiting (t-worker-0: InvalidImageName bad)",
        ),
        (["Created", "Running"], [pod()], "running", "running"),
        (
            ["Created", "Failed"],
            [pod(ended={"reason": "OOMKilled", "exitCode": 137})],
            "ended",
            "Failed (t-worker-0: OOMKilled with exit code 137)",
        ),
        (["Created", "Succeeded"], [], "ended", "Succeeded"),
    ],
)
def test_state_has_the_reasons_of_the_pods(
    api, attempts, conditions, pods, phase, state
):
    jobs = tfjob.TFJobs(SETTINGS)
    job = jobs.submit("t", attempts(strategy="auto").new())
    api.status(job.id, *conditions)
    api.pods = pods
    (found,) = jobs.jobs("t")
    assert (found.phase, found.state) == (phase, state)
    assert found.hopeless == ("InvalidImageName" in state)
    assert bool(found.hint) == ("OOMKilled" in state)
    assert not found.cancelled
    api.stored[job.id]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (found,) = jobs.jobs("t")
    assert found.cancelled == (phase != "ended")


@pytest.mark.parametrize(
    "code, kind, text",
    [
        (401, UserError, "401: no"),
        (403, UserError, "403: no"),
        (404, UserError, "training operator"),
        (422, UserError, "422: no"),
        (429, UnreachableError, "429 no"),
        (500, UnreachableError, "500 no"),
        (503, UnreachableError, "503 no"),
    ],
)
def test_what_is_asked_again_and_what_is_not(api, attempts, code, kind, text):
    jobs = tfjob.TFJobs(SETTINGS)
    api.refusal = code, {"message": "no"}
    with pytest.raises(kind, match=text):
        jobs.submit("t", attempts(strategy="auto").new())
    with pytest.raises(kind):
        jobs.jobs("t")


def test_denial_of_what_was_allowed_is_asked_again(api, attempts):
    jobs = tfjob.TFJobs(SETTINGS)
    assert jobs.jobs("t") == []
    api.refusal = 403, {"message": "roles are not read yet"}
    with pytest.raises(UnreachableError, match="403 roles are not read yet"):
        jobs.jobs("t")
    with pytest.raises(UserError, match="403"):
        jobs.submit("t", attempts(strategy="auto").new())


def test_apiserver_that_is_away_is_unreachable(api):
    jobs = tfjob.TFJobs(SETTINGS)
    api.shutdown()
    api.server_close()
    with pytest.raises(UnreachableError):
        jobs.jobs("t")


def test_files_that_no_pod_sees_are_copied_once(attempts, tmp_path):
    volume, own = tmp_path / "volume", tmp_path / "own"
    for name in ("graph/variables/data", "train.gz", "schema.pbtxt"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text(name)
    settings = {
        "volumes": [{"claim": "c", "path": str(volume)}],
        "folder": str(volume / "jobs"),
    }
    spec = dataclasses.replace(
        attempts().new().request()[0],
        train_files=(str(own / "train.gz"),),
        eval_files=(str(volume / "eval.gz"),),
        transform_graph=str(own / "graph"),
        schema_file=str(own / "schema.pbtxt"),
        warm_start="s3://models/weights",
        checkpoint_dir=str(own / "checkpoints" / "a17"),
    )
    moved = staging.staged(spec, settings)
    assert moved.eval_files == spec.eval_files
    assert moved.warm_start == spec.warm_start
    assert moved.model_dir == spec.model_dir
    assert moved.checkpoint_dir == str(volume / "jobs" / "a17" / "checkpoints")
    for path in (*moved.train_files, moved.transform_graph, moved.schema_file):
        assert path.startswith(str(volume / "jobs" / "a17"))
    graph = Path(moved.transform_graph, "variables", "data")
    assert graph.read_text() == "graph/variables/data"
    shutil.rmtree(own)
    assert staging.staged(spec, settings) == moved
    staging.remove(moved, settings)
    assert [*(volume / "jobs").iterdir()] == []
    plain = settings | {"folder": None}
    assert staging.staged(spec, plain) == spec
    staging.remove(spec, plain)


def test_root_must_be_on_a_volume_unless_files_are_copied(tmp_path):
    tfjob.check("/mnt/root/runs", SETTINGS)
    tfjob.check("s3://bucket/runs", SETTINGS | {"folder": "/mnt/root/jobs"})
    with pytest.raises(UserError) as raised:
        tfjob.check("s3://bucket/runs", SETTINGS)
    assert raised.value.key == "run.root"
    assert "a folder below /mnt/root" in str(raised.value)
