"""Training as a job of a real Slurm, undisturbed and disturbed."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
EPOCHS = 4  # as of `undisturbed`


@pytest.fixture(scope="module")
def make_paused(make_spec):
    """Makes a training that waits after its second epoch: `make_paused(**spec)`.

    It goes on when there is a file `go` in the folder of `folder_of`.
    """

    def make(**changes):
        spec = make_spec(epochs=EPOCHS, module="paused", **changes)
        parameters = {**spec.hyperparameters, "marks": str(folder_of(spec))}
        return dataclasses.replace(spec, hyperparameters=parameters)

    return make


@pytest.fixture
def paused(make_paused):
    """A training by two workers that waits after its second epoch."""
    return make_paused(distribution=GANG)


@pytest.fixture(scope="module", autouse=True)
def out_of_time(launcher, make_paused):
    """A training beside the other tests, which waits until its time is up."""
    spec = make_paused(distribution={"strategy": "one_device"})
    settings = {"partition": "other", "time_limit": 7200.0}
    return spec, launcher(spec, settings=settings).start()


def folder_of(spec):
    return Path(spec.checkpoint_dir).parent


def go(spec):
    (folder_of(spec) / "go").touch()


def is_paused(spec):
    """Whether both workers wait."""
    return lambda: len(list(folder_of(spec).glob("paused-*"))) >= 2


def test_killed_launcher_and_restarted_controller_leave_the_training_as_it_is(
    slurm, launcher, paused, assert_trained
):
    first = launcher(paused).start()
    first.wait_for(is_paused(paused))
    (job,) = slurm.jobs()
    first.kill()
    slurm.power_off("slurmctld")
    second = launcher(paused).start()
    second.wait_for("Slurm does not answer")
    slurm.power_on("slurmctld")
    second.wait_for(f"joining Slurm job {job}")
    go(paused)
    facts = second.facts()
    assert_trained(paused, facts)
    assert (facts["workers"], facts["replicas"]) == (2, 2)
    log = second.log.read_text()
    assert "[worker-0] " in log and "[chief-0] " in log
    assert f"epoch {EPOCHS}/{EPOCHS}" in (folder_of(paused) / "events").read_text()
    assert not slurm.jobs()


def test_lost_node_changes_nothing(slurm, launcher, paused, assert_trained):
    training = launcher(paused).start()
    training.wait_for(is_paused(paused))
    slurm.lose("n2")
    training.wait_for("restarting the gang (1 of 3)")
    slurm.power_on("n2")
    go(paused)
    assert_trained(paused, training.facts(), restarts=1)


def test_interrupted_and_cancelled_trainings_resume(
    slurm, launcher, paused, assert_trained
):
    first = launcher(paused).start()
    first.wait_for(is_paused(paused))
    first.kill(signal.SIGTERM)
    assert not slurm.jobs()
    assert list(Path(paused.checkpoint_dir).glob("step-*/state.json"))
    second = launcher(paused).start()
    second.wait_for(lambda: slurm.jobs())
    slurm.command("scancel", *slurm.jobs())
    assert "was cancelled" in second.error()
    go(paused)
    assert_trained(paused, launcher(paused).start().facts())


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"partition": "gpus"}, "invalid partition"),
        ({"options": ["--mem=1T"]}, "configuration is not available"),
        ({"options": ["--hold"], "pending_timeout": 1.0}, "JobHeldUser"),
    ],
)
def test_job_that_cannot_run_is_rejected_with_the_reason(
    slurm, launcher, paused, settings, message
):
    error = launcher(paused, settings=settings).start().error()
    assert message in error and "trainer.distribution.slurm" in error
    assert not slurm.jobs()


def test_job_whose_time_is_up_is_followed_by_another_one(
    slurm, assert_trained, out_of_time
):
    spec, training = out_of_time
    training.wait_for(lambda: list(folder_of(spec).glob("paused-*")))
    (job,) = slurm.jobs("other")
    slurm.command("scontrol", "update", f"JobId={job}", "TimeLimit=1")  # minute
    training.wait_for("ended as TIMEOUT (TimeLimit): restarting the gang (not counted)")
    go(spec)
    assert_trained(spec, training.facts(), restarts=1)
