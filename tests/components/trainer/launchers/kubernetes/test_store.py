"""TFJobs without a volume: what pods get, and their logs by Kubernetes' API."""

from __future__ import annotations

import json

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers.jobs.attempt import REJECTED, RemoteAttempt
from strategos.components.trainer.launchers.jobs.kubernetes import manifest
from strategos.components.trainer.launchers.jobs.kubernetes.logs import PodLogs
from strategos.components.trainer.launchers.jobs.watch import Watch
from strategos.components.trainer.launchers.tfjob import TFJOB

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
KEYS = [{"name": "store", "env": {"AWS_SECRET_ACCESS_KEY": "key"}, "path": None}]
POD = ("team", "job-name=t", lambda task: f"t-{task.name}")
FILES = [{"name": "ca", "env": {}, "path": "/etc/ca"}]


@pytest.fixture
def attempt(attempts, tmp_path):
    """An attempt without a volume; a local folder stands for its object store."""
    return RemoteAttempt(attempts(**GANG).new().folder, tmp_path)


def test_pods_without_a_volume_get_credentials_and_no_secret(attempt, settings):
    given = settings | {"volumes": [], "secrets": KEYS, "config_maps": FILES}
    made = manifest.manifest(TFJOB, "t", attempt, given, "c0de")
    (container,) = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"][
        "containers"
    ]
    assert container["command"][-1] == str(attempt.folder)
    key = {"secretKeyRef": {"name": "store", "key": "key"}}
    assert container["env"] == [
        {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": key},
        {"name": "STRATEGOS_CODE", "value": "c0de"},
    ]
    spec = made["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    assert spec["volumes"] == [{"name": "volume-1", "configMap": {"name": "ca"}}]
    assert attempt.token not in json.dumps(made)


def test_logs_have_each_line_once(api, attempt, jobs, monkeypatch):
    mine = PodLogs(jobs()._core.api_client, *POD, clock=iter(range(99)).__next__)

    lines = {task: [] for task in attempt.tasks}

    def shown(rank):
        return lines[attempt.tasks[rank]]

    def copy():
        for task, line in mine.new_lines(attempt.tasks, at_once=True):
            lines[task].append(line)

    at = "2026-11-23T04:00:0"
    api.logs["t-chief-0"] = [f"{at}1.1Z one", f"{at}2.25Z two", f"{at}2.25Z two and"]
    api.logs["t-worker-0"] = 400  # its container is being created
    copy()
    assert shown(0) == ["one", "two", "two and"] and shown(1) == []
    api.logs["t-chief-0"] += [f"{at}2.25Z a half", f"{at}3.5Z  indented", "no time"]
    api.logs["t-worker-0"] = [f"{at}2.0Z \N{SNOWMAN}"]
    copy()
    assert shown(0) == ["one", "two", "two and", "a half", " indented"]
    assert shown(1) == ["\N{SNOWMAN}"]
    assert api.asked[-2][1]["sinceTime"] == [f"{at}2Z"]
    api.refusal = 503, {"message": "starting"}
    copy()
    api.refusal = 403, {"message": "the roles are not read yet"}
    copy()
    api.refusal = None
    api.logs["t-worker-0"] = 404  # the pod is gone
    api.logs["t-chief-0"] += [f"{at}4.5Z last"]
    copy()
    assert shown(0)[-2:] == [" indented", "last"] and len(shown(0)) == 6
    assert shown(1) == ["\N{SNOWMAN}"]


def test_logs_that_may_not_be_read_are_missed_once(api, attempt, jobs, capfd):
    mine = PodLogs(jobs()._core.api_client, *POD)
    api.refusal = 403, {"message": "no"}
    for _ in range(20):
        list(mine.new_lines(attempt.tasks, at_once=True))
    said = capfd.readouterr().err
    assert said.count("Kubernetes answers 403") == 1
    assert "training-jobs.yaml" in said and "kubectl logs" in said


def test_logs_are_not_asked_for_at_each_look(api, attempt, jobs):
    times = iter((0.0, 0.5, 1.0, 2.5))
    mine = PodLogs(jobs()._core.api_client, *POD, clock=times.__next__)
    for _ in range(4):
        list(mine.new_lines(attempt.tasks))
    assert len(api.asked) == 2 * len(attempt.tasks)


def test_pod_that_cannot_use_the_object_store_ends_the_training(api, attempt, jobs):
    mine = jobs()
    job = mine.submit("t", attempt)
    api.status(job.id, "Created", "Failed")
    said = f"error: {REJECTED}: no answer. Check AWS_ACCESS_KEY_ID"
    api.logs[f"{job.id}-worker-0"] = [f"2026-11-23T04:00:00.5Z {said}"]
    watch = Watch(mine, "t", job, attempt, 60.0, clock=iter(range(0, 99, 9)).__next__)
    with pytest.raises(
        UserError, match=f"job {job.id} {REJECTED}: no answer"
    ) as raised:
        watch.until_ended()
    assert "Check AWS_ACCESS_KEY_ID" in str(raised.value)
