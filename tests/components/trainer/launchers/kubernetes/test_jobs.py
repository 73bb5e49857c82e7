"""TFJobs by the real client of Kubernetes, against a server with the API's paths."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.launchers.jobs.kubernetes import task
from strategos.components.trainer.launchers.jobs.kubernetes.manifest import (
    CLUSTER_VARIABLE,
)
from strategos.components.trainer.launchers.jobs.scheduler import UnreachableError


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


def test_training_becomes_a_tfjob_of_its_tasks(api, attempts, jobs, settings):
    attempt = attempts(strategy="parameter_server", workers=3).new()
    mine = jobs()
    job = mine.submit("strategos-1", attempt)
    assert mine.submit("strategos-1", attempt).id == job.id  # 409: it is this one
    (found,) = api.stored.values()
    assert found["metadata"]["name"] == job.id
    specs = found["spec"]["tfReplicaSpecs"]
    assert job.id.startswith("strategos-1-0001-")
    counts = {kind: each["replicas"] for kind, each in specs.items()}
    assert counts == {"Chief": 1, "Worker": 3, "PS": 1}
    assert {each["restartPolicy"] for each in specs.values()} == {"Never"}
    labels = specs["Worker"]["template"]["metadata"]["labels"]
    assert labels == found["metadata"]["labels"]
    inside = specs["Worker"]["template"]["spec"]
    (container,) = inside["containers"]
    assert (container["name"], container["image"]) == ("tensorflow", settings["image"])
    assert container["command"][-1] == str(attempt.folder)
    assert container["volumeMounts"][0]["mountPath"] == "/mnt/root"
    assert inside["volumes"][0]["persistentVolumeClaim"] == {"claimName": "root"}
    (again,) = mine.jobs("strategos-1")
    assert (again.id, again.folder) == (job.id, str(attempt.folder))
    assert mine.jobs("strategos-2") == []
    mine.cancel(job)
    mine.cancel(job)  # 404: it is gone already
    assert not api.stored


def test_operator_replaces_only_workers_that_may_be_lost(api, attempts, jobs):
    gang = {"strategy": "multi_worker_mirrored", "workers": 3}
    plain, elastic = (
        api.stored[jobs(time_limit=90.0).submit("t", attempts(**each).new()).id]
        for each in (gang, gang | {"min_workers": 2})
    )
    specs = elastic["spec"]["tfReplicaSpecs"]
    policies = {kind: each["restartPolicy"] for kind, each in specs.items()}
    assert policies == {"Chief": "Never", "Worker": "OnFailure"}
    assert elastic["spec"]["enableDynamicWorker"] is True
    policy = plain["spec"]["runPolicy"]
    assert policy.pop("backoffLimit") == 0
    assert elastic["spec"]["runPolicy"] == policy
    assert plain["spec"].keys() == {"runPolicy", "tfReplicaSpecs"}
    assert CLUSTER_VARIABLE not in str(plain)


@pytest.mark.parametrize("kind, index", [("chief", 0), ("worker", 1)])
def test_pod_that_may_be_lost_finds_its_task_among_all(
    api, attempts, jobs, kind, index
):
    gang = {"strategy": "multi_worker_mirrored", "workers": 3, "min_workers": 2}
    job = jobs().submit("t", attempts(**gang).new()).id
    spec = api.stored[job]["spec"]["tfReplicaSpecs"][kind.title()]
    (container,) = spec["template"]["spec"]["containers"]
    environ = {each["name"]: each["value"] for each in container["env"]}
    # As the operator writes it with `enableDynamicWorker`.
    own = {str(index): f"{job}-worker-{index}.team.svc:2222"} if index else {}
    config = {"cluster": {"worker": own, "ps": None}}
    config["task"] = {"type": kind, "index": index}
    environ["TF_CONFIG"] = json.dumps(config)
    task.complete(environ)
    found = ClusterSpec.from_environment(environ)
    assert found.task == Task(kind, index)
    workers = (f"{job}-worker-0:2222", f"{job}-worker-1:2222")
    assert found.addresses == {"chief": (f"{job}-chief-0:2222",), "worker": workers}


def test_training_of_one_task_has_no_worker_to_lose(api, attempts, jobs):
    gang = {"strategy": "multi_worker_mirrored", "workers": 1}
    plain, elastic = (
        api.stored[jobs().submit("t", attempts(**each).new()).id]["spec"]
        for each in (gang, gang | {"min_workers": 1})
    )
    for spec in (plain, elastic):
        (container,) = spec["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
        del container["command"]  # of each attempt
    assert plain == elastic


def test_tfjob_of_a_step_is_deleted_with_its_pod(api, attempts, jobs, monkeypatch):
    def submitted(namespace):
        mine = jobs(namespace=namespace)
        attempt = attempts(strategy="auto").new(mine.launcher_timeout)
        job = mine.submit("t", attempt)
        found = api.stored[job.id]["metadata"].get("ownerReferences")
        return found, attempt.launcher_timeout

    assert submitted("team") == (None, None)  # a launcher may come back at any time
    monkeypatch.setenv("KFP_POD_NAME", "flights-7-1234")
    monkeypatch.setenv("KFP_POD_UID", "a1b2")
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "flights-7-1234", "uid": "a1b2"}
    assert submitted("team") == ([pod], 600.0)
    assert submitted("other") == (None, 600.0)  # Kubernetes would delete it at once


def test_tfjob_goes_on_to_the_pod_that_joins_it(api, attempts, jobs, monkeypatch):
    monkeypatch.setenv("KFP_POD_NAME", "flights-7-1234")
    monkeypatch.setenv("KFP_POD_UID", "a1b2")
    job = jobs(namespace="team").submit("t", attempts(strategy="auto").new(600.0))
    monkeypatch.setenv("KFP_POD_NAME", "flights-7-5678")
    monkeypatch.setenv("KFP_POD_UID", "c3d4")
    following = jobs(namespace="team")
    following.adopt(job)
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "flights-7-5678", "uid": "c3d4"}
    assert api.stored[job.id]["metadata"]["ownerReferences"] == [pod]
    assert [each.id for each in following.jobs("t")] == [job.id]
    jobs(namespace="other").adopt(job)  # of another namespace: has no owner
    api.stored.clear()
    following.adopt(job)  # 404: it has ended meanwhile


@pytest.mark.long
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
    api, attempts, jobs, conditions, pods, phase, state
):
    mine = jobs()
    job = mine.submit("t", attempts(strategy="auto").new())
    api.status(job.id, *conditions)
    api.pods = pods
    (found,) = mine.jobs("t")
    assert (found.phase, found.state) == (phase, state)
    assert found.hopeless == ("InvalidImageName" in state)
    assert bool(found.hint) == ("OOMKilled" in state)
    assert not found.cancelled
    api.stored[job.id]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (found,) = mine.jobs("t")
    assert found.cancelled == (phase != "ended")


@pytest.mark.parametrize(
    "message, reclaimed",
    [
        ("Job t has failed because it was active longer than specified deadline", True),
        ("Job t has failed because it has reached the specified backoff limit", False),
    ],
)
def test_time_limit_is_told_from_failures_by_the_operators_words(
    api, attempts, jobs, message, reclaimed
):
    mine = jobs()
    job = mine.submit("t", attempts(strategy="auto").new())
    api.status(job.id, "Created", "Failed")
    api.stored[job.id]["status"]["conditions"][-1] |= {
        "reason": "TFJobFailed",
        "message": message,
    }
    (found,) = mine.jobs("t")
    assert (found.phase, found.reclaimed) == ("ended", reclaimed)


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
def test_what_is_asked_again_and_what_is_not(api, attempts, jobs, code, kind, text):
    mine = jobs()
    api.refusal = code, {"message": "no"}
    with pytest.raises(kind, match=text):
        mine.submit("t", attempts(strategy="auto").new())
    with pytest.raises(kind):
        mine.jobs("t")


def test_denial_of_what_was_allowed_is_asked_again(api, attempts, jobs):
    mine = jobs()
    assert mine.jobs("t") == []
    api.refusal = 403, {"message": "roles are not read yet"}
    with pytest.raises(UnreachableError, match="403 roles are not read yet"):
        mine.jobs("t")
    with pytest.raises(UserError, match="403"):
        mine.submit("t", attempts(strategy="auto").new())


def test_apiserver_that_is_away_is_unreachable(api, jobs):
    mine = jobs()
    api.shutdown()
    api.server_close()
    with pytest.raises(UnreachableError):
        mine.jobs("t")
