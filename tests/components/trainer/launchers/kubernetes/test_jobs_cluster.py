"""Training as a TFJob or a JobSet on a real Kubernetes, undisturbed and disturbed.

Some trainings have their files on a volume, and others in an object store only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2000)]

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVER = {"strategy": "parameter_server", "workers": 1, "parameter_servers": 1}
EPOCHS = 4  # as of `undisturbed`
IMAGE = "registry.example.com/strategos:1"
ROOT = Path(__file__).parents[5]  # pods see it as /workload
PROGRAMS = Path(__file__).with_name("programs")  # in the cluster's network
STORE = {
    "AWS_ACCESS_KEY_ID": "minio",
    "AWS_SECRET_ACCESS_KEY": "minio123",
    "AWS_REGION": "us-east-1",
    "S3_ENDPOINT": "http://10.250.0.1:9000",
}
USE_STORE = f"import os; os.environ.update({STORE})"
# Settings of pods without a volume.
STORED = {
    "volumes": [],
    "folder": "s3://models/training",
    "secrets": [{"name": "object-store", "env": {k: k for k in STORE}, "path": None}],
    "context": str(ROOT),
}
# Pods download the user's modules.
MODULES = {
    "modules": "s3://models/modules",
    "secrets": STORED["secrets"],
    "context": None,
}
LIST = """
import json
from kubernetes import client, config

config.load_kube_config()
listed = client.CustomObjectsApi().list_namespaced_custom_object
kinds = ("kubeflow.org", "v1", "tfjobs"), ("jobset.x-k8s.io", "v1alpha2", "jobsets")
found = [listed(group, v, "kubeflow", plural) for group, v, plural in kinds]
print(json.dumps([each for part in found for each in part["items"]]))
"""
# The keys of all objects of trainings that stand for no folder.
KEYS = """
import json, os
import boto3

store = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT"])
found = store.list_objects_v2(Bucket="models", Prefix="training/")
names = [each["Key"] for each in found.get("Contents", ())]
print(json.dumps([name for name in names if not name.endswith("/")]))
"""


@pytest.fixture(scope="module")
def training(cluster, workload, make_spec):
    """Makes a training whose files pods see: `training(module, **spec)`."""
    user = cluster.volume / "training" / "user"
    shutil.copytree(workload.folder, user)

    def make(module="model", **changes):
        spec = make_spec(epochs=EPOCHS, module=module, folder=str(user), **changes)
        marks = cluster.volume / "training" / Path(spec.model_dir).name
        marks.mkdir()
        parameters = {**spec.hyperparameters, "marks": str(marks)}
        # The last part of its name tells a training from others.
        checkpoints = str(Path(spec.model_dir) / marks.name)
        return dataclasses.replace(
            spec, hyperparameters=parameters, checkpoint_dir=checkpoints
        )

    return make


@pytest.fixture(scope="module")
def stored(make_spec):
    """Makes a training whose tasks share no folder; it waits: `stored()`."""

    def make(module="paused"):
        spec = make_spec(
            epochs=EPOCHS,
            module=module,
            folder=str(ROOT / "tests" / "workloads" / "late"),
            distribution=GANG,
        )
        parameters = {**spec.hyperparameters, "marks": "/tmp"}  # of each pod
        key = str(Path(spec.model_dir) / Path(spec.model_dir).name)
        return dataclasses.replace(spec, hyperparameters=parameters, checkpoint_dir=key)

    return make


@pytest.fixture(scope="module")
def launcher(cluster, make_launcher, tmp_path_factory):
    """A launcher that is not started yet: `launcher(spec, **settings)`.

    It has the rights of kubeflow/manifests, unless it is another `account`.
    """
    files = tmp_path_factory.mktemp("accounts")

    def make(spec, account="strategos", operation=None, name="tfjob", **settings):
        file = files / account
        if not file.exists():
            cluster.python(PROGRAMS / "account.py", account, file)
        variables = {**STORE, "KUBECONFIG": str(file)}
        use = f"import os; os.environ.update({variables})"

        def start(code, *words, **streams):
            return cluster.start(f"{use}\n{code}", *words, **streams)

        job = {
            "image": IMAGE,
            "namespace": "kubeflow",
            "service_account": None,
            "volumes": [{"claim": "serving", "path": str(cluster.volume)}],
            "folder": str(cluster.volume / "training" / "staged"),
            "cpu": None,
            "memory": None,
            "accelerator": None,
            "secrets": [],
            "config_maps": [],
            "context": None,
            "workload": "/workload",
            "time_limit": None,
            "pending_timeout": 600.0,
            **settings,
        }
        return make_launcher(start, name, job, spec, **(operation or {}))

    return make


@pytest.fixture
def live_jobs(cluster):
    """Names of the TFJobs and JobSets that have not ended: `live_jobs()`."""

    def live():
        return [
            each["metadata"]["name"]
            for each in cluster.python(LIST)
            if not {"Failed", "Succeeded", "Completed"}
            & {c["type"] for c in each.get("status", {}).get("conditions", ())}
        ]

    return live


def marks_of(spec):
    return Path(spec.hyperparameters["marks"])


def paused(spec):
    """The marks of the tasks that wait."""
    return sorted(marks_of(spec).glob("paused-*"))


def in_pods(job):
    """The marks of the tasks of a TFJob that wait, in the pods' own folders /tmp."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            if f"HOSTNAME={job}-".encode() in (process / "environ").read_bytes():
                marks = (process / "root" / "tmp").glob("paused-*")
                found |= {mark.name: mark for mark in marks}
    return sorted(found.values())


def kill(mark, whole_pod):
    """Kills the process that left a mark, or the first process of its pod."""
    pod, number = mark.name.removeprefix("paused-").rsplit("-", 1)
    number = "1" if whole_pod else number
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            status = (process / "status").read_text()
        except OSError:  # ended in the meantime
            continue
        inside = status.partition("NSpid:")[2].split("\n")[0].split()
        if f"HOSTNAME={pod}".encode() in environment and inside[-1] == number:
            os.kill(int(process.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process for {mark}")


def end_process(*wanted):
    """Kills the process with these words in its command."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended in the meantime
            command = (process / "cmdline").read_bytes()
            if all(str(word).encode() in command for word in wanted):
                os.kill(int(process.name), signal.SIGKILL)
                return
    raise AssertionError(f"no process for {wanted}")


def submitted(launcher):
    """The TFJobs that a launcher has created, in their order."""
    return re.findall(r"submitted Kubernetes job (\S+):", launcher.log.read_text())


def test_killed_launcher_and_api_server_leave_the_training_as_it_is(
    cluster, launcher, stored, live_jobs, assert_trained
):
    spec = stored()
    settings = {**STORED, **MODULES}
    first = launcher(spec, **settings).start()
    first.wait_for("submitted Kubernetes job")
    (job,) = submitted(first)
    first.wait_for(lambda: len(in_pods(job)) == 2)
    first.kill()
    second = launcher(spec, **settings).start()
    second.wait_for(f"joining Kubernetes job {job}: running")
    end_process("kube-apiserver", cluster.folder)  # it starts again
    cluster.python(PROGRAMS / "restart_argo.py")
    for mark in in_pods(job):
        mark.with_name("go").touch()
    facts = second.facts()
    assert_trained(spec, facts)
    assert (facts["workers"], facts["replicas"]) == (2, 2)
    log = second.log.read_text()
    assert "[worker-0] " in log and "[chief-0] " in log
    assert f"epoch {EPOCHS}/{EPOCHS}" in (second.folder / "events").read_text()
    assert live_jobs() == [] and cluster.python(f"{USE_STORE}{KEYS}") == []


BOTH = pytest.mark.parametrize("name", ["kubernetes", "tfjob"])


def test_two_pods_of_a_jobset_equal_one_device(
    launcher, training, live_jobs, assert_trained
):
    spec = training(distribution=GANG)
    started = launcher(spec, name="kubernetes").start()
    facts = started.facts()
    assert_trained(spec, facts)
    assert (facts["workers"], facts["replicas"]) == (2, 2)
    log = started.log.read_text()
    assert "[worker-0] " in log and "[chief-0] " in log
    assert len(submitted(started)) == 1 and live_jobs() == []


@BOTH
def test_killed_pod_changes_nothing(
    cluster, launcher, stored, live_jobs, assert_trained, name
):
    spec = stored()
    started = launcher(spec, name=name, **STORED).start()
    started.wait_for("submitted Kubernetes job")
    started.wait_for(lambda: len(in_pods(submitted(started)[0])) == 2)
    (worker,) = (m for m in in_pods(submitted(started)[0]) if "-worker-" in m.name)
    kill(worker, whole_pod=True)
    started.wait_for(lambda: len(submitted(started)) == 2)
    started.wait_for(lambda: len(in_pods(submitted(started)[1])) == 2)
    for mark in in_pods(submitted(started)[1]):
        mark.with_name("go").touch()
    assert_trained(spec, started.facts(), restarts=1)
    assert live_jobs() == [] and cluster.python(f"{USE_STORE}{KEYS}") == []


@BOTH
def test_training_goes_on_without_a_lost_pod_until_another_is_in_its_place(
    cluster, launcher, stored, live_jobs, assert_trained, name
):
    spec = stored("slow")
    elastic = {"operation": {"min_workers": 1}}
    started = launcher(spec, name=name, **elastic, **STORED).start()
    started.wait_for("submitted Kubernetes job")
    (job,) = submitted(started)
    started.wait_for(lambda: len(in_pods(job)) == 2)
    cluster.python(PROGRAMS / "lost_pod.py", "lose", job)
    try:
        started.wait_for("worker-0 is lost (away for 3 s): 1 of 2 workers go on")
        started.wait_for(f"Kubernetes job {job}: running ({job}-worker-0")
        # The chief's task waits again.
        started.wait_for(lambda: len(in_pods(job)) == 2)
    finally:
        cluster.python(PROGRAMS / "lost_pod.py", "bring-back", job)
    started.wait_for("waiting for a checkpoint to take in worker-0")
    for mark in in_pods(job):
        mark.with_name("go").touch()
    facts = started.facts()
    assert_trained(spec, facts, restarts=2)
    assert facts["reason"].endswith("; trained by 2, 1 and 2 workers in turn")
    assert len(submitted(started)) == 1 and live_jobs() == []


def test_killed_worker_changes_nothing(launcher, training, live_jobs, assert_trained):
    spec = training("paused", distribution=GANG)
    started = launcher(spec).start()
    started.wait_for(lambda: len(paused(spec)) == 2)
    (worker,) = (mark for mark in paused(spec) if "-worker-" in mark.name)
    kill(worker, whole_pod=False)
    (marks_of(spec) / "go").touch()
    assert_trained(spec, started.facts(), restarts=1)
    assert len(submitted(started)) == 1
    assert live_jobs() == []


@BOTH
def test_job_whose_time_is_up_is_followed_by_another_which_is_no_failure(
    cluster, launcher, training, live_jobs, assert_trained, name
):
    spec = training("paused", distribution=GANG)
    settings = {"time_limit": 7200.0, "operation": {"max_restarts": 0}}
    started = launcher(spec, name=name, **settings).start()
    started.wait_for(lambda: len(paused(spec)) == 2)
    cluster.python(PROGRAMS / "end_time.py", name, *submitted(started))
    started.wait_for(lambda: len(submitted(started)) == 2)
    (marks_of(spec) / "go").touch()
    assert_trained(spec, started.facts(), restarts=1)
    assert "(not counted)" in started.log.read_text()
    assert live_jobs() == []


def test_terminated_launcher_deletes_the_tfjob_and_the_next_resumes(
    launcher, training, live_jobs, assert_trained
):
    spec = training("paused", distribution=GANG)
    first = launcher(spec, **MODULES).start()
    first.wait_for(lambda: len(paused(spec)) == 2)
    first.kill(signal.SIGTERM)
    await_none(live_jobs)
    (marks_of(spec) / "go").touch()
    second = launcher(spec, **MODULES).start()
    assert_trained(spec, second.facts())


def test_parameter_server_with_one_worker_equals_one_device(
    launcher, training, live_jobs, assert_trained
):
    spec = training(distribution=SERVER)
    started = launcher(spec).start()
    facts = started.facts()
    assert_trained(spec, facts)
    assert (facts["strategy"], facts["workers"]) == ("parameter_server", 1)
    assert "[ps-0] " in started.log.read_text()
    assert live_jobs() == []


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"cpu": "1000"}, "Unschedulable"),
        ({"image": "registry.example.com/absent:1"}, "ErrImagePull"),
    ],
)
def test_pods_that_cannot_start_are_reported_with_the_reason(
    launcher, training, live_jobs, settings, reason
):
    spec = training(distribution=GANG)
    error = launcher(spec, pending_timeout=20.0, **settings).start().error()
    assert "has not started within 20 s" in error
    assert reason in error or "ImagePullBackOff" in error
    assert "trainer.distribution.tfjob" in error
    await_none(live_jobs)


def await_none(live_jobs):
    """Waits until there is no TFJob: Kubernetes deletes the pods first."""
    until = time.monotonic() + 60
    while live_jobs():
        assert time.monotonic() < until
        time.sleep(1)


def test_account_without_rights_is_one_message(launcher, training, live_jobs):
    error = (
        launcher(training(distribution=GANG), account="pipeline-runner").start().error()
    )
    assert "Kubernetes answers 403" in error
    assert "Check the service account and namespace" in error
    assert live_jobs() == []


def test_memory_that_is_too_little_is_reported(launcher, training, live_jobs):
    little = {"memory": "100Mi", "operation": {"max_restarts": 1}}
    error = launcher(training(distribution=GANG), **little).start().error()
    # Whether Kubernetes ends the whole container depends on what it runs.
    assert "Memory ran out" in error or "OOMKilled" in error
    await_none(live_jobs)


# The last test: no TFJob can be made after it.
def test_operator_that_is_absent_is_one_message(cluster, launcher, training, live_jobs):
    cluster.python(PROGRAMS / "training_operator.py", "scale", "0")
    error = launcher(training(distribution=GANG)).start().error()
    assert "Kubernetes does not answer: 500" in error and "training-operator" in error
    assert live_jobs() == []
    cluster.python(PROGRAMS / "training_operator.py", "remove")
    error = launcher(training(distribution=GANG)).start().error()
    assert "Kubernetes answers 404" in error
    assert "training operator (TFJob, kubeflow.org/v1) is installed" in error
