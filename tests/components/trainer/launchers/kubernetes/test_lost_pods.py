"""Trainings with `min_workers`, whose pods are lost and come back.

The pods are processes that share nothing but files in an object store.
"""

from __future__ import annotations

import signal
import time

import pytest

pytestmark = pytest.mark.faults

GANG = {"strategy": "multi_worker_mirrored", "workers": 3}


@pytest.fixture
def spec(training):
    """A training that waits after its second epoch."""
    return training("slow", distribution=GANG)


@pytest.fixture
def paused(tmp_path):
    """Number of tasks that have waited so far: `paused()`."""
    return lambda: len(list(tmp_path.glob("paused-*")))


@pytest.fixture
def go(tmp_path):
    """Lets the tasks train on."""
    return (tmp_path / "go").touch


@pytest.mark.parametrize("name", ["kubernetes", "tfjob"])
def test_the_others_go_on_without_a_pod_that_stays_away(
    pods, launcher, spec, paused, go, assert_trained, name
):
    started = launcher(spec, name, min_workers=2).start()
    started.wait_for(lambda: paused() == 3)
    pods.lose("worker-1")
    killed = time.monotonic()
    started.wait_for(lambda: paused() == 5)  # where they were
    assert time.monotonic() - killed < 45  # 15 on a quiet machine
    go()
    facts = started.facts()
    assert_trained(spec, facts, restarts=1)
    assert facts["workers"] == facts["replicas"] == 2
    assert facts["reason"].endswith("; trained by 3 and 2 workers in turn")
    log = started.log.read_text()
    lost = "worker-1 is lost (away for 3 s): 2 of 3 workers go on from the last"
    assert lost in log
    (job,) = pods.processes  # no other one was needed
    assert f"Kubernetes job {job}: running ({job}-worker-" in log
    assert "Unschedulable 0/3 nodes" in log


@pytest.mark.parametrize("name", ["kubernetes", "tfjob"])
def test_a_pod_that_comes_back_takes_part_from_the_next_checkpoint_on(
    pods, launcher, spec, paused, go, assert_trained, name
):
    started = launcher(spec, name, min_workers=2).start()
    started.wait_for(lambda: paused() == 3)
    pods.lose("worker-0")
    started.wait_for(lambda: paused() == 5)
    pods.bring_back("worker-0")
    started.wait_for("waiting for a checkpoint to take in worker-0")
    go()
    facts = started.facts()
    assert_trained(spec, facts, restarts=2)
    assert facts["workers"] == facts["replicas"] == 3
    assert facts["reason"].endswith("; trained by 3, 2 and 3 workers in turn")
    returns = "worker-0 returns: 3 of 3 workers go on from step "
    assert returns in started.log.read_text() and len(pods.processes) == 1


def test_a_pod_that_is_killed_runs_again_and_takes_part(
    pods, launcher, spec, paused, go, assert_trained
):
    started = launcher(spec, "kubernetes", min_workers=2).start()
    started.wait_for(lambda: paused() == 3)
    pods.kill("worker-1")
    # On a slow machine the others may have begun without it.
    late = "waiting for a checkpoint to take in worker-1"
    started.wait_for(lambda: paused() == 6 or late in started.log.read_text())
    go()
    facts = started.facts()
    assert_trained(spec, facts, restarts=facts["restarts"])
    assert facts["restarts"] in (1, 2)
    assert (facts["workers"], len(pods.processes)) == (3, 1)


def test_a_pod_that_is_terminated_saves_before_the_others_go_on(
    pods, launcher, spec, go, assert_trained
):
    go()
    started = launcher(spec, "kubernetes", min_workers=2).start()
    events = started.folder / "events"
    started.wait_for(lambda: events.exists() and "epoch 1/4" in events.read_text())
    pods.gone.add("worker-1")
    process = pods.kill("worker-1", signal.SIGTERM)
    assert process.wait(60) == 143  # a Job counts a pod with 0 as one that is done
    facts = started.facts()
    assert_trained(spec, facts, restarts=1)
    assert facts["reason"].endswith("; trained by 3 and 2 workers in turn")
    assert "restarting the gang (not counted)" in started.log.read_text()


def test_a_lost_chief_is_followed_by_another_job_with_those_who_are_there(
    pods, launcher, spec, paused, go, assert_trained
):
    started = launcher(spec, "tfjob", min_workers=2, start_timeout=30.0).start()
    started.wait_for(lambda: paused() == 3)
    pods.gone.add("worker-1")
    pods.kill("chief-0")
    started.wait_for(lambda: paused() == 5)
    go()
    facts = started.facts()
    assert_trained(spec, facts, restarts=1)
    assert (facts["workers"], len(pods.processes)) == (2, 2)
    assert "worker-1 are lost" not in started.log.read_text()
    assert "worker-1 is lost (away for 30 s): 2 of 3" in started.log.read_text()


def test_fewer_pods_than_min_workers_end_the_training(pods, launcher, spec, paused):
    started = launcher(spec, "tfjob", min_workers=3, start_timeout=30.0).start()
    started.wait_for(lambda: paused() == 3)
    pods.lose("worker-1")
    error = started.error()
    assert "worker-1 did not join within 30 s (trainer.distribution.start_t" in error
    assert len(pods.processes) == 1  # no other job is tried
