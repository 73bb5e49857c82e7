"""A server with the paths of Kubernetes' API, for the real client."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse

import pytest
import yaml

from strategos.components.trainer.launchers import tfjob

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
TFJOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
PODS = "/api/v1/namespaces/team/pods"


class Api(http.server.ThreadingHTTPServer):
    """Stores TFJobs as an apiserver does; the status and the pods are a test's."""

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
        name = path.removeprefix(TFJOBS).strip("/")
        if self.refusal:
            return self.refusal
        if path == PODS:
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": self.pods}
        if path.endswith("/log"):
            return self._log(path.split("/")[-2], query)
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

    def _log(self, pod, query):
        """As kubelet does: lines by time; a status in place of a log is answered."""
        self.asked.append((pod, query))
        assert query["container"] == ["tensorflow"] and query["timestamps"] == ["true"]
        since = query.get("sinceTime", [""])[0].rstrip("Z")
        lines = self.logs.get(pod, 404)
        if isinstance(lines, int):
            return lines, {"message": "no"}
        return 200, "".join(f"{line}\n" for line in lines if line >= since)


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


@pytest.fixture
def settings():
    """Settings of a TFJob, as in `Operation.job`."""
    return SETTINGS


@pytest.fixture
def jobs(api, tmp_path):
    """The launcher's side of it: `jobs(**settings)`."""

    def make(**changes):
        return tfjob.TFJobs(SETTINGS | changes, tmp_path, "c0de")

    return make
