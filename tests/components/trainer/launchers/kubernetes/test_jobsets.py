"""JobSets by the real client of Kubernetes, and what differs from TFJobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers.jobs.attempt import RemoteAttempt
from strategos.components.trainer.launchers.kubernetes import JOBSET

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVERS = {"strategy": "parameter_server", "workers": 3, "parameter_servers": 2}
SCHEMA = Path(__file__).parents[4] / "kubeflow" / "kubernetes.schema.json"


@pytest.fixture
def resource():
    return JOBSET


def environments(jobset):
    """The environment of each pod, in which kubelet has replaced `$(NAME)`."""
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        for index in range(spec["completions"]):
            environ = {}
            for each in container["env"]:
                value = each.get("value", str(index))  # a field: only the index is one
                for name, known in environ.items():
                    value = value.replace(f"$({name})", known)
                environ[each["name"]] = value
            yield environ


@pytest.mark.parametrize("limit", [None, 90.0])
@pytest.mark.parametrize("distribution", [{"strategy": "auto"}, GANG, SERVERS])
def test_training_becomes_a_jobset_that_the_schema_allows(
    api, attempts, jobs, distribution, limit
):
    jsonschema = pytest.importorskip("jsonschema")  # not in the newer stack
    schemas = json.loads(SCHEMA.read_text())
    job = jobs(time_limit=limit).submit("t", attempts(**distribution).new())
    made = api.stored[job.id]
    kind = {"$ref": f"#/$defs/{schemas['kinds']['JobSet']}", "$defs": schemas["$defs"]}
    schema = jsonschema.Draft202012Validator(kind)
    schema.validate(made)
    made["spec"]["replicatedJobs"][0]["template"]["spec"]["completion"] = 1
    assert not schema.is_valid(made)


def test_kubernetes_itself_restarts_nothing(api, attempts, jobs):
    attempt = attempts(**SERVERS).new()
    job = jobs(time_limit=90.0).submit("t", attempt)
    spec = api.stored[job.id]["spec"]
    assert spec["failurePolicy"]["maxRestarts"] == 0
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["chief"]
    counts = {}
    for each in spec["replicatedJobs"]:
        inner = each["template"]["spec"]
        counts[each["name"]] = inner["completions"]
        assert inner["completions"] == inner["parallelism"] and each["replicas"] == 1
        assert (inner["backoffLimit"], inner["activeDeadlineSeconds"]) == (0, 90)
        pod = inner["template"]
        assert pod["metadata"]["labels"] == {"strategos/training": "t"}
        assert pod["spec"]["restartPolicy"] == "Never"
        (container,) = pod["spec"]["containers"]
        words = ["trainer.distribution.kubernetes", str(attempt.folder)]
        assert container["command"][-2:] == words
    assert counts == {"chief": 1, "worker": 3, "ps": 2}


@pytest.mark.parametrize("distribution", [GANG, SERVERS])
def test_each_pod_finds_its_task_at_the_name_that_the_service_gives_it(
    api, attempts, jobs, distribution
):
    attempt = attempts(**distribution).new()
    job = jobs().submit("t", attempt)
    found = [ClusterSpec.from_environment(e) for e in environments(api.stored[job.id])]
    assert {each.task for each in found} == {*attempt.tasks}
    assert len(found) == len(attempt.tasks)
    assert len({json.dumps(each.addresses) for each in found}) == 1
    for each in found:
        task, host = each.task, each.addresses[each.task.type][each.task.index]
        assert host == f"{job.id}-{task.type}-0-{task.index}.{job.id}:2222"


def test_single_task_needs_no_cluster(api, attempts, jobs):
    job = jobs().submit("t", attempts(strategy="auto").new())
    (environ,) = environments(api.stored[job.id])
    assert "TF_CONFIG" not in environ


@pytest.mark.parametrize(
    "status, phase, state, reclaimed",
    [
        ({}, "waiting", "controller of JobSets has not handled it yet", False),
        ({"replicatedJobsStatus": [{"name": "chief"}]}, "waiting", "waiting", False),
        (("Completed", "AllJobsCompleted"), "ended", "Completed", False),
        (("Failed", "ReachedMaxRestarts"), "ended", "Failed", False),
        (("Failed", "FailJobSetFailurePolicyAction"), "ended", "Failed", True),
    ],
)
def test_state_of_a_jobset_is_that_of_its_conditions(
    api, attempts, jobs, status, phase, state, reclaimed
):
    mine = jobs()
    job = mine.submit("t", attempts(**GANG).new())
    if isinstance(status, tuple):
        kind, reason = status
        condition = {"type": kind, "status": "True", "reason": reason}
        status = {"conditions": [condition]}
    api.stored[job.id]["status"] = status
    (found,) = mine.jobs("t")
    assert (found.phase, found.reclaimed) == (phase, reclaimed)
    assert state in found.state


def test_jobset_runs_once_all_its_pods_do(api, attempts, jobs):
    mine = jobs()
    mine.submit("t", attempts(**GANG).new())
    for phase, expected in (("Pending", "waiting"), ("Running", "running")):
        phases = ("Running", phase)
        api.pods = [
            {"metadata": {"name": str(i)}, "status": {"phase": each}}
            for i, each in enumerate(phases)
        ]
        assert mine.jobs("t")[0].phase == expected


def test_logs_are_those_of_the_pods_whose_names_kubernetes_chose(
    api, attempts, jobs, tmp_path
):
    attempt = RemoteAttempt(attempts(**GANG).new().folder, tmp_path)
    mine = jobs()
    job = mine.submit("t", attempt)
    output = mine.output(job, attempt)
    output.pass_on(at_once=True)
    assert api.asked == []  # no pod has a name yet
    names = [f"{job.id}-chief-0-0-abcde", f"{job.id}-worker-0-0-fghij"]
    api.pods = [
        {"metadata": {"name": name}, "status": {"phase": "Running"}} for name in names
    ]
    api.logs = {name: ["2026-11-23T04:00:01.1Z x"] for name in names}
    output.pass_on(at_once=True)
    assert [pod for pod, _ in api.asked] == names


def test_cluster_without_jobsets_is_one_message(api, attempts, jobs):
    mine = jobs()
    api.refusal = 404, {"message": "page not found"}
    with pytest.raises(UserError) as raised:
        mine.submit("t", attempts(**GANG).new())
    assert raised.value.key == "trainer.distribution.kubernetes"
    assert "(JobSet, jobset.x-k8s.io/v1alpha2) is installed" in str(raised.value)
