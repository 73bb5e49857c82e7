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
@pytest.mark.parametrize(
    "distribution", [{"strategy": "auto"}, GANG, GANG | {"min_workers": 1}, SERVERS]
)
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


def test_kubernetes_replaces_only_workers_that_may_be_lost(api, attempts, jobs):
    job = jobs().submit("t", attempts(min_workers=1, **GANG).new())
    spec = api.stored[job.id]["spec"]
    found = {}
    for each in spec["replicatedJobs"]:
        inner = each["template"]["spec"]
        policy = inner["template"]["spec"]["restartPolicy"]
        replaced = inner.get("podReplacementPolicy")
        found[each["name"]] = inner["backoffLimit"], policy, replaced
    assert found == {
        "chief": (0, "Never", None),
        "worker": (2147483647, "OnFailure", "Failed"),
    }
    plain = jobs().submit("t", attempts(**GANG).new())
    same = api.stored[plain.id]["spec"]
    assert spec["failurePolicy"] == same["failurePolicy"]
    assert spec["successPolicy"] == same["successPolicy"]


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


def running(job, *tasks, **others):
    """Pods by the end of their task's name; the others in another phase."""
    phases = {**{task: "Running" for task in tasks}, **others}
    for task, phase in phases.items():
        name = f"{job}-{task.replace('_', '-')}-abcde"
        yield {"metadata": {"name": name}, "status": {"phase": phase}}


def test_jobset_runs_with_the_chief_and_as_many_pods_as_its_training_needs(
    api, attempts, jobs
):
    three = {"strategy": "multi_worker_mirrored", "workers": 3}
    mine = jobs(least=2)
    job = mine.submit("t", attempts(min_workers=2, **three).new()).id
    chief, first, second = "chief_0_0", "worker_0_0", "worker_0_1"

    def found(*tasks, **others):
        api.pods = [*running(job, *tasks, **others)]
        (one,) = mine.jobs("t")
        return one.phase, one.partial

    assert found(**{chief: "Pending"}) == ("waiting", False)
    assert found(first, second, **{chief: "Pending"}) == ("waiting", True)
    assert found(chief, **{first: "Pending", second: "Failed"}) == ("waiting", True)
    assert found(chief, first, **{second: "Pending"}) == ("running", True)
    assert found(chief, first, second) == ("running", False)
    # Workers end a moment before the chief's pod.
    assert found(chief, **{first: "Succeeded", second: "Succeeded"})[0] == "running"
    # The end of the chief's pod is that of the training, of which a launcher then
    # hears no heartbeat, whatever is said of the object.
    assert found(first, **{chief: "Failed"})[0] == "running"


def test_worker_whose_container_waits_to_start_again_does_not_run(api, attempts, jobs):
    mine = jobs(least=1)
    job = mine.submit("t", attempts(min_workers=1, **GANG).new()).id
    api.pods = [*running(job, "chief-0-0", "worker-0-0")]
    why = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    waits = {"name": "tensorflow", "state": {"waiting": why}, "image": "i"}
    waits |= {"imageID": "", "ready": False, "restartCount": 1}
    api.pods[1]["status"]["containerStatuses"] = [waits]
    api.status(job, "StartupPolicyCompleted")
    (found,) = mine.jobs("t")
    assert (found.phase, found.partial) == ("running", True)
    assert f"{job}-worker-0-0-abcde: CrashLoopBackOff back-off 10s" in found.state


def test_logs_of_a_task_are_those_of_its_newest_pod(api, attempts, jobs, tmp_path):
    attempt = RemoteAttempt(attempts(**GANG).new().folder, tmp_path)
    mine = jobs()
    job = mine.submit("t", attempt)
    logs = mine.output(job, attempt)._logs

    def lines():
        found = logs.new_lines(attempt.tasks, at_once=True)
        return [line for task, line in found if task.type == "worker"]

    def pod(end, hour):
        at = f"2026-11-23T{hour:02}:00:00Z"
        name = f"{job.id}-worker-0-0-{end}"
        metadata = {"name": name, "creationTimestamp": at}
        api.pods.append({"metadata": metadata, "status": {"phase": "Running"}})
        api.logs[name] = [f"{at[:-1]}.5Z of {end}"]

    pod("zzzzz", 4)
    assert lines() == ["of zzzzz"] and lines() == []
    pod("aaaaa", 5)
    assert lines() == []  # that of the first still exists
    api.logs[f"{job.id}-worker-0-0-zzzzz"] = 404
    assert lines() == [] and lines() == ["of aaaaa"]


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
