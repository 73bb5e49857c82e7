"""Kubeflow Pipelines' REST API as a server in this process.

It knows the operations and messages that KFP's generated client (`kfp_server_api`)
declares, and rejects any other path, query parameter, field or enum value.
"""

from __future__ import annotations

import functools
import http.server
import inspect
import json
import re
import threading
import urllib.parse
from pathlib import Path

import pytest
import yaml

from strategos.pipeline.config import loading

_DECLARED = re.compile(
    r"def \w+_with_http_info\(self.*?'(/apis/v2beta1[^']+)', '([A-Z]+)'", re.S
)
_BODY = re.compile(r":param (\w+) (?:body|experiment|run|recurring_run):")
_SERVICES = ("ExperimentService", "HealthzService", "RecurringRunService", "RunService")
_TIME = "2026-11-23T04:00:{:02}Z"


@functools.cache
def operations():
    """(method, pattern of the path, query parameters, type of the body) of each."""
    return list(_operations())


def _operations():
    import kfp_server_api

    for service in _SERVICES:
        source = inspect.getsource(getattr(kfp_server_api, f"{service}Api"))
        for found in _DECLARED.finditer(source):
            path, method = found.groups()
            query = set(re.findall(r"query_params.append\(\('(\w+)'", found[0]))
            body = _BODY.search(found[0])
            pattern = re.sub(r"\{\w+\}", "([^/:]+)", path)
            yield method, re.compile(pattern), query, body and body[1]


def check_message(value, kind, where):
    """Raises ValueError unless `value` is a message of the type `kind`."""
    if kind in ("object", "datetime") or value is None:
        return
    simple = {"str": str, "bool": bool, "int": int, "float": (int, float)}
    if kind in simple:
        if not isinstance(value, simple[kind]):
            raise ValueError(f"{where} is no {kind}: {value!r}")
        return
    of = re.fullmatch(r"(?:list\[|dict\(str, )(\w+)[\])]", kind)
    if of:
        each = value.values() if isinstance(value, dict) else value
        for one in each:
            check_message(one, of[1], where)
        return
    import kfp_server_api

    model = getattr(kfp_server_api, kind)
    if not model.openapi_types:  # an enum
        if value not in model.allowable_values:
            raise ValueError(f"{where} is not one of {model.allowable_values}")
        return
    types = {model.attribute_map[n]: t for n, t in model.openapi_types.items()}
    unknown = value.keys() - types.keys()
    if unknown:
        raise ValueError(f"{where} has no field {sorted(unknown)}")
    for name, one in value.items():
        check_message(one, types[name], f"{where}.{name}")


_BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def robfig(expression):
    """What KFP's reader of cron makes of an expression: a set for each of six fields.

    Five fields lack the day of the week. A set with `*` stands for a field with one.
    """
    fields = expression.split()
    if len(fields) not in (5, 6):
        raise ValueError(f"Expected 5 to 6 fields, found {len(fields)}")
    return [
        set().union(*(_range(part, *bounds) for part in field.split(",")))
        for field, bounds in zip([*fields, "*"][:6], _BOUNDS, strict=True)
    ]


def _range(part, low, high):
    span, *step = part.split("/")
    star = span == "*"
    first, *last = (str(low), str(high)) if star else span.split("-")
    begin, end = (int(n) for n in (first, last[0] if last else first))
    if step and not last:
        end = high
    if begin < low or end > high or begin > end:
        raise ValueError(f"{part} is out of {low} to {high}")
    found = set(range(begin, end + 1, int(step[0]) if step else 1))
    return found | {"*"} if star else found


class Stub(http.server.ThreadingHTTPServer):
    """The state of an installation; `asked` are the requests, `fails` what they meet.

    `fails[METHOD path-prefix]` is a list of statuses, one for each coming request:
    0 closes the connection without an answer, None answers as usual.
    """

    daemon_threads = True
    done = {
        "phase": "Succeeded",
        "nodes": {"Resolve": "Succeeded", "Trainer": "Cached"},
    }
    log = Path(__file__).with_name("stopped_by_a_gate.log").read_text()  # KFP 2.0.5

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.asked, self.fails, self.tokens = [], {}, []
        self.multi_user, self.has_workflows, self.goes_on = False, True, True
        self.experiments, self.runs, self.recurring = [], {}, {}
        self.story, self.logs, self.pods = [{}], {}, {}

    def handle_error(self, request, client_address):
        """A client that gave up is no error."""

    def requests(self, method="POST"):
        return [path for verb, path, _ in self.asked if verb == method]

    def answer(self, method, path, query, body):
        """(status, JSON) for a request."""
        self.asked.append((method, path, body))
        for key, statuses in self.fails.items():
            if f"{method} {path}".startswith(key) and statuses:
                status = statuses.pop(0)
                if status is not None:
                    return status, {"message": "not\n today", "code": 13}
        if path.startswith("/apis/v1alpha1/runs/"):
            pod = path.split("/")[-2]
            lost = {"error_message": "Failed to read logs", "error_details": "…"}
            return 200, self.logs.get(pod, lost)
        if path.startswith("/api/v1/namespaces/kubeflow/pods/"):  # Kubernetes' own
            log = self.pods.get(path.split("/")[-2])
            return (200, log) if log else (404, {"message": "pods not found"})
        if path.startswith("/apis/v1beta1/runs/"):
            return self._manifest(path.rpartition("/")[2])
        known = [o for o in operations() if o[0] == method and o[1].fullmatch(path)]
        if not known:
            return 404, {"message": "Not Found"}
        _, pattern, allowed, kind = known[0]
        try:
            if query.keys() - allowed:
                raise ValueError(f"no parameter {query.keys() - allowed}")
            check_message(body, kind or "object", "body")
            ids = pattern.fullmatch(path).groups()
            return getattr(self, _name(method, path))(body, query, *ids)
        except ValueError as error:
            return 400, {"message": str(error)}
        except KeyError as error:
            return 404, {"message": f"{error} not found"}

    def get_healthz(self, body, query):
        return 200, {"multi_user": self.multi_user, "tag_name": "2.0.5"}

    def get_experiments(self, body, query):
        (wanted,) = json.loads(query["filter"])["predicates"]
        assert (wanted["operation"], wanted["key"]) == (1, "display_name")
        found = [
            each
            for each in self.experiments
            if each["display_name"] == wanted["stringValue"]
            and each.get("namespace") == query.get("namespace")
        ]
        return 200, {"experiments": found} if found else {}

    def post_experiments(self, body, query):
        if body["display_name"] in [e["display_name"] for e in self.experiments]:
            return 409, {"message": "already exists"}
        self.experiments.append({**body, "experiment_id": "e1"})
        return 200, self.experiments[-1]

    def post_runs(self, body, query):
        if body["experiment_id"] not in [e["experiment_id"] for e in self.experiments]:
            raise KeyError(body["experiment_id"])
        made = {**body, "run_id": f"r{len(self.runs) + 1}", "state": "PENDING"}
        self.runs[made["run_id"]] = {**made, "created_at": _TIME.format(0)}
        return 200, self.runs[made["run_id"]]

    def get_runs(self, body, query, run_id):
        """Each call turns a page of the story."""
        run = self.runs[run_id]
        self.page = self.story.pop(0) if len(self.story) > 1 else self.story[0]
        run["state"] = _state(self.page)
        if run["state"] in ("SUCCEEDED", "FAILED"):
            run["finished_at"] = _TIME.format(50)
        else:
            run["finished_at"] = "1970-01-01T00:00:00Z"
        run["run_details"] = {"task_details": list(_details(self.page))}
        return 200, run

    def post_runs_terminate(self, body, query, run_id):
        """The state CANCELING comes only if the run goes on for a while."""
        states = ("RUNNING", *(["CANCELING"] if self.goes_on else []), "FAILED")
        self.runs[run_id]["state_history"] = [{"state": state} for state in states]
        late = ("Failed", "Step exceeded its deadline")
        ended = {"phase": "Failed", "nodes": {"Trainer": late}}
        self.story = [{**ended, "spec": {"activeDeadlineSeconds": 0}}]
        return 200, {}

    def post_recurringruns(self, body, query):
        robfig(body["trigger"]["cron_schedule"]["cron"])
        number = max([0, *(int(each[1:]) for each in self.recurring)]) + 1
        made = {**body, "recurring_run_id": f"c{number}", "status": "ENABLED"}
        self.recurring[made["recurring_run_id"]] = made
        return 200, made

    def get_recurringruns(self, body, query):
        """Pages of one schedule."""
        names, at = sorted(self.recurring), query.get("page_token")
        index = names.index(at) if at else 0
        assert query["experiment_id"]
        page = {"recurringRuns": [self.recurring[n] for n in names[index : index + 1]]}
        if index + 1 < len(names):
            page["next_page_token"] = names[index + 1]
        return 200, page

    def delete_recurringruns(self, body, query, recurring_id):
        del self.recurring[recurring_id]
        return 200, {}

    def _manifest(self, run_id):
        if not self.has_workflows:
            return 404, {"message": "Not Found"}
        nodes = {each["id"]: each for each in _argo(self.page)}
        status = {k: self.page.get(k, "") for k in ("phase", "message")}
        spec = self.page.get("spec", {})
        manifest = {"spec": spec, "status": {**status, "nodes": nodes}}
        runtime = {"workflow_manifest": json.dumps(manifest)}
        return 200, {"run": {"id": run_id}, "pipeline_runtime": runtime}


def _name(method, path):
    words = [w for w in re.split("[/:]", path)[3:] if not re.fullmatch(r"[cer]\d+", w)]
    return "_".join([method.lower(), *words])


def _state(page):
    phase = page.get("phase", "Running")
    return {"Failed": "FAILED", "Succeeded": "SUCCEEDED"}.get(phase, "RUNNING")


def _argo(page):
    """Argo's nodes for a page: `{node: phase or (phase, message)}`, as on KFP 2.0.5."""
    yield {"id": "w", "displayName": "w", "type": "DAG", "phase": "Running"}
    for name in page.get("omitted", ()):
        message = "omitted: depends condition not met"
        skipped = {"type": "Skipped", "phase": "Omitted", "message": message}
        for shown in (name, f"{name}-driver"):
            when = {"startedAt": _TIME.format(9), "finishedAt": _TIME.format(9)}
            yield {"id": f"w-{shown}", "displayName": shown, **skipped, **when}
    for number, (name, found) in enumerate(page.get("nodes", {}).items()):
        phase, message = found if isinstance(found, tuple) else (found, "")
        begun = {"startedAt": _TIME.format(number)}
        over = {"finishedAt": _TIME.format(number + 20)}
        end = over if phase in ("Succeeded", "Failed", "Cached") else {}
        group, pod = f"w-{number}0", f"w-{number}1"
        driver = {"id": f"w-{number}9", "displayName": f"{name}-driver", "type": "Pod"}
        yield {**driver, "phase": "Succeeded", **begun, **over}
        whole = {"id": group, "displayName": name, "type": "DAG", **begun, **end}
        yield {**whole, "phase": {"Cached": "Succeeded"}.get(phase, phase)}
        inside = {"id": pod, "displayName": "executor", "boundaryID": group, **begun}
        if phase == "Cached":
            yield {**inside, "type": "Skipped", "phase": "Skipped", **end}
        else:
            yield {**inside, "type": "Pod", "phase": phase, "message": message, **end}


def _details(page):
    """The same as KFP's own task details, which have no reasons."""
    names = {"Succeeded": "SUCCEEDED", "Cached": "SUCCEEDED", "Failed": "FAILED"}
    for each in _argo(page):
        yield {
            "display_name": each["displayName"],
            "state": names.get(each["phase"], "RUNNING"),
            "start_time": each.get("startedAt"),
            "end_time": each.get("finishedAt", "1970-01-01T00:00:00Z"),
        }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _do(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.tokens.append(self.headers.get("Authorization"))
        status, value = self.server.answer(self.command, url.path, query, body)
        if not status:
            self.close_connection = True
            return
        text = value if isinstance(value, str) else json.dumps(value)
        self.send_response(status)
        kind = "text/plain" if isinstance(value, str) else "application/json"
        self.send_header("Content-Type", kind)
        if status == 302:
            self.send_header("Location", "https://login.example.com/")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_DELETE = _do

    def log_message(self, *_):
        pass


_VARIABLES = (
    *("KF_PIPELINES_ENDPOINT", "KF_PIPELINES_UI_ENDPOINT", "STRATEGOS_KFP_TOKEN"),
    *("KF_PIPELINES_SA_TOKEN_PATH", "KUBERNETES_SERVICE_HOST", "KUBECONFIG"),
)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch, tmp_path):
    """No variable of this machine names a cluster, and no proxy is asked."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.fixture
def kfp():
    with Stub() as stub:
        threading.Thread(target=stub.serve_forever, args=(0.01,), daemon=True).start()
        yield stub
        stub.shutdown()


@pytest.fixture
def kfp_reads():
    """`kfp_reads(cron)`: what KFP makes of an expression, see `robfig`."""
    return robfig


@pytest.fixture
def configured(workload):
    """Config for a cluster at a URL: `configured(url, schedule, **kubeflow)`."""

    def configure(url, schedule=None, **keys):
        section = {"image": "x", "endpoint": url, **keys}
        overlay = workload.with_name("cluster.yaml")
        sections = {"kubeflow": section, "schedule": schedule}
        overlay.write_text(yaml.safe_dump({k: v for k, v in sections.items() if v}))
        sets = ["pusher.to=s3://models/flights"]
        return loading.load(workload, [str(overlay)], sets).config

    return configure


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def compiled(tmp_path):
    """A compiled file with two steps, and settings of pods."""
    tasks = {"Trainer": {}, "Resolve": {}}
    spec = {"pipelineInfo": {"name": "flights"}, "root": {"dag": {"tasks": tasks}}}
    file = tmp_path / "compiled.yaml"
    file.write_text(yaml.safe_dump_all([spec, {"platforms": {"kubernetes": {}}}]))
    return file
