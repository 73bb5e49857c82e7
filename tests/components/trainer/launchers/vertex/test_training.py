"""Trainings as custom jobs whose tasks are real processes and share a bucket only."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVER = {"strategy": "parameter_server", "workers": 1, "parameter_servers": 1}
EPOCHS = 4  # as of `undisturbed`
MODULES = "gs://bucket/modules"

_ANONYMOUS = """
import os
import google.auth
from google.auth.credentials import AnonymousCredentials
from strategos.components.trainer.launchers.jobs.vertex import logs

google.auth.default = lambda **_: (AnonymousCredentials(), "p")
logs.URL = {url!r} + "/v2/entries:list"
logs._ASK_SECONDS = 1.0
os.dup2(1, 2)
"""


@pytest.fixture(scope="module")
def object_store():
    return "gs"


@pytest.fixture(scope="module")
def training(workload, make_spec, bucket_client):
    """Makes a training of a step on Vertex AI: `training(module)`.

    Its examples and checkpoints are in an object store, its outputs are copies.
    """
    for path in filter(Path.is_file, workload.root.rglob("*")):
        name = f"data/{path.relative_to(workload.root)}"
        bucket_client.upload_file(str(path), "bucket", name)

    def at(path):
        return path and f"gs://bucket/data/{Path(path).relative_to(workload.root)}"

    def make(module="model", **changes):
        spec = make_spec(epochs=EPOCHS, module=module, **changes)
        marks = Path(spec.model_dir)
        return dataclasses.replace(
            spec.with_inputs(at),
            model_dir=f"{marks}/model/1",
            log_dir=f"{marks}/model_run/1",
            checkpoint_dir=f"gs://bucket/{marks.name}/checkpoints/key",
            hyperparameters={**spec.hyperparameters, "marks": str(marks)},
        )

    return make


@pytest.fixture(scope="module")
def launcher(cloud, settings, warm_tensorflow, make_launcher):
    """A launcher that is not started yet: `launcher(spec, **settings)`."""
    prefix = _ANONYMOUS.format(url=cloud.url)

    def start(code, *words, stdout, stderr):
        process = warm_tensorflow.script(prefix + code, *words)
        process.send_signal = lambda sig: os.kill(process.pid, sig)
        log = os.fdopen(os.dup(stdout.fileno()), "wb", 0)
        copy = {"target": shutil.copyfileobj, "args": (process.stdout, log, 1)}
        threading.Thread(**copy, daemon=True).start()
        return process

    def make(spec, **changes):
        job = {**settings, "endpoint": cloud.url, **changes}
        here = dataclasses.replace(spec, checkpoint_dir=str(marks_of(spec) / "log"))
        made = make_launcher(start, "vertex", job, here, checkpoint_every="10 steps")
        made._given = (spec.to_json(), *made._given[1:])
        return made

    return make


def marks_of(spec):
    return Path(spec.hyperparameters["marks"])


def paused(spec):
    """The marks of the tasks that wait."""
    return sorted(marks_of(spec).glob("paused-*"))


@pytest.fixture
def assert_complete(assert_trained, bucket_client):
    """Checks a training: `assert_complete(spec, facts)`; the store keeps no copies."""

    def check(spec, facts, restarts=0):
        assert_trained(spec, facts, restarts)
        for copies in (f"{marks_of(spec).name}/checkpoints/key/jobs", "staged"):
            left = bucket_client.list_objects_v2(Bucket="bucket", Prefix=f"{copies}/")
            assert not left.get("Contents")

    return check


@pytest.mark.faults
def test_killed_launcher_and_replica_change_nothing(
    cloud, launcher, training, assert_complete
):
    spec = training("paused", distribution=GANG)
    first = launcher(spec, modules=MODULES).start()
    first.wait_for(lambda: len(paused(spec)) == 2)
    (job,) = cloud.live()
    first.kill()
    second = launcher(spec, modules=MODULES).start()
    second.wait_for(f"joining Vertex AI job {job}: RUNNING")
    os.kill(cloud.replicas[job]["workerpool1-0"].pid, signal.SIGKILL)
    (marks_of(spec) / "go").touch()
    facts = second.facts()
    assert_complete(spec, facts, restarts=1)
    assert (facts["workers"], facts["replicas"]) == (2, 2)
    log = second.log.read_text()
    assert "[worker-0] " in log and "[chief-0] " in log
    assert f"epoch {EPOCHS}/{EPOCHS}" in (second.folder / "events").read_text()
    assert not cloud.live() and len(cloud.jobs) == 2


@pytest.mark.cluster
def test_modules_that_are_gone_end_the_training_with_one_message(
    cloud, launcher, training, bucket_client
):
    spec = training(distribution=GANG)
    waiting = launcher(spec, modules=MODULES)
    found = cloud.start

    def start(*words, **environ):
        listed = bucket_client.list_objects_v2(Bucket="bucket", Prefix="modules/")
        for each in listed.get("Contents", ()):
            bucket_client.delete_object(Bucket="bucket", Key=each["Key"])
        return found(*words, **environ)

    cloud.start = start
    try:
        error = waiting.start().error()
    finally:
        cloud.start = found
    assert f"vertex.modules: {MODULES}/model-" in error
    assert "object not found" in error
    assert not cloud.live()


@pytest.mark.cluster
def test_terminated_launcher_cancels_the_job_and_the_next_resumes(
    cloud, launcher, training, assert_complete
):
    spec = training("paused", distribution=GANG)
    first = launcher(spec).start()
    first.wait_for(lambda: len(paused(spec)) == 2)
    (job,) = cloud.live()
    first.process.send_signal(signal.SIGTERM)
    first.wait_for(lambda: cloud.jobs[job].state.name == "JOB_STATE_CANCELLING")
    (marks_of(spec) / "go").touch()  # tasks save and end after a step
    assert first.process.wait(60) == -signal.SIGTERM
    assert cloud.jobs[job].state.name == "JOB_STATE_CANCELLED"
    second = launcher(spec).start()
    assert_complete(spec, second.facts())
    assert "resuming at step" in (second.folder / "events").read_text()


@pytest.mark.cluster
def test_job_without_machines_ends_with_the_reason_of_the_service(
    cloud, launcher, training, monkeypatch
):
    monkeypatch.setattr(cloud, "is_capacity", False)
    spec = training(distribution=GANG)
    error = launcher(spec, pending_timeout=1.0).start().error()
    assert "has not started within 1 s: PENDING (Waiting for job" in error
    assert "quotas" in error
    assert not cloud.live()
    waiting = launcher(training(distribution=GANG)).start()
    waiting.wait_for("waiting for Vertex AI job")
    assert waiting.kill(signal.SIGTERM) == -signal.SIGTERM
    assert not cloud.live()


@pytest.mark.cluster
def test_parameter_server_with_one_worker_equals_one_device(
    cloud, launcher, make_spec, assert_complete
):
    """Of a run on this machine: the launcher copies the inputs to the store."""
    spec = make_spec(epochs=EPOCHS, distribution=SERVER)
    given = {**spec.hyperparameters, "marks": spec.model_dir}
    spec = dataclasses.replace(spec, hyperparameters=given)
    trained = launcher(spec, folder="gs://bucket/staged").start()
    facts = trained.facts()
    assert_complete(spec, facts)
    assert (facts["strategy"], facts["workers"]) == ("parameter_server", 1)
    tasks = list(cloud.replicas.values())[-1]
    assert tasks.keys() == {f"workerpool{pool}-0" for pool in range(3)}
