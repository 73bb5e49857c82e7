"""What becomes of Slurm's words, and of the settings for a job, without a Slurm."""

from __future__ import annotations

import dataclasses
import json

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.launchers import LAUNCHERS, slurm
from strategos.components.trainer.launchers.jobs import slurm_task, training, watch
from strategos.components.trainer.launchers.jobs.output import FileOutput
from strategos.components.trainer.launchers.jobs.scheduler import Job, UnreachableError

SETTINGS = {
    "partition": "gpus",
    "account": None,
    "time_limit": 90.0,
    "pending_timeout": 60.0,
    "options": ["--gres=gpu:2"],
}


def test_tasks_get_the_addresses_of_their_nodes_in_the_order_of_ranks(attempts):
    attempt = attempts(strategy="multi_worker_mirrored", workers=4).new()
    (attempt.folder / "hosts.txt").write_text("n9\nn10\nn11\n")
    nodes = "NodeName={0} Arch=x86_64 Features=(null) NodeAddr={1} NodeHostName={0}\n"
    text = nodes.format("n10", "10.0.0.10") + nodes.format("n9", "10.0.0.9")
    (attempt.folder / "nodes.txt").write_text(text)
    environ = {"SLURM_STEP_TASKS_PER_NODE": "2,1(x2)", "SLURM_JOB_ID": "7"}
    found = slurm_task.addresses(attempt.folder, environ)
    hosts, ports = zip(*(each.split(":") for each in found), strict=True)
    assert hosts == ("10.0.0.9", "10.0.0.9", "10.0.0.10", "n11")
    assert len(set(ports)) == 4 and all(20000 <= int(p) < 32768 for p in ports)
    other = slurm_task.addresses(attempt.folder, {**environ, "SLURM_JOB_ID": "8"})
    assert not set(other) & set(found)
    cluster = ClusterSpec.of(attempt.tasks, found).at(attempt.tasks[2])
    config = json.loads(cluster.tf_config())
    assert config["cluster"] == {"chief": [found[0]], "worker": found[1:]}
    assert config["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    "distribution, options",
    [
        (
            {"strategy": "multi_worker_mirrored", "workers": 3},
            {"--ntasks=3", "--nodes=3", "--ntasks-per-node=1"},
        ),
        ({"strategy": "parameter_server", "workers": 2}, {"--ntasks=4"}),
        ({"strategy": "auto"}, {"--ntasks=1", "--nodes=1", "--ntasks-per-node=1"}),
    ],
)
def test_job_is_submitted_with_the_settings(
    attempts, distribution, options, tmp_path, monkeypatch
):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\necho "12;cluster"\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    attempt = attempts(**distribution).new()
    job = slurm.Slurm(SETTINGS).submit("strategos-1", attempt)
    assert (job.id, job.phase) == ("12", "waiting")
    given = set((tmp_path / "given").read_text().split())
    assert options | {"--partition=gpus", "--time=2", "--gres=gpu:2"} <= given
    assert {"--no-requeue", "--dependency=singleton", "--job-name=strategos-1"} <= given
    assert not any(each.startswith("--account") for each in given)
    assert ("--nodes" in str(options)) == any(g.startswith("--nodes=") for g in given)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("sbatch: error: Invalid partition name specified", UserError),
        ("slurm_load_jobs error: Unable to contact slurm controller", UnreachableError),
        ("error: Munge encode failed: Protocol authentication error", UnreachableError),
    ],
)
def test_rejected_is_not_unreachable(attempts, text, kind, tmp_path, monkeypatch):
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\necho "{text}" >&2\nexit 1\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(kind, match=text.partition("error: ")[2]):
        slurm.Slurm(SETTINGS).submit("strategos-1", attempts(strategy="auto").new())


def test_missing_slurm_and_remote_root_are_rejected_before_a_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no sbatch, squeue"):
        LAUNCHERS["slurm"].check(str(tmp_path), SETTINGS)
    for name in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
        (tmp_path / name).touch(0o755)
    LAUNCHERS["slurm"].check(str(tmp_path), SETTINGS)
    with pytest.raises(UserError, match="run.root, which is s3://"):
        LAUNCHERS["slurm"].check("s3://bucket/root", SETTINGS)


class Batch:
    """A batch system whose jobs are what a test says."""

    name, pending_timeout, remedy = "Slurm", 60.0, "Look at sinfo."
    launcher_timeout = None

    def __init__(self):
        self.job = Job("1", "/attempt", "waiting", "PENDING (Resources)")
        self.answers = True

    def become(self, phase, state, **more):
        self.job = dataclasses.replace(self.job, phase=phase, state=state, **more)

    def output(self, job, attempt):
        return FileOutput(attempt, self.name)

    def jobs(self, name):
        if not self.answers:
            raise UnreachableError("down")
        return [self.job] if self.job else []


@pytest.fixture
def watched(attempts, monkeypatch):
    """A watch over a job: `watched(batch, *happenings)`, one for each second."""

    def watched(batch, *happenings):
        attempt = attempts(strategy="auto").new()
        seconds, left = [0.0], list(happenings)

        def sleep(_):
            seconds[0] += 1.0
            happening = left.pop(0) if left else None
            if happening:
                happening(batch, attempt)
            assert seconds[0] < 200, "the watch does not end"

        monkeypatch.setattr(watch.time, "sleep", sleep)
        job, clock = batch.job, lambda: seconds[0]
        ending = watch.Watch(batch, "name", job, attempt, 40.0, clock).until_ended()
        return ending, seconds[0]

    return watched


def test_answer_outranks_the_state_of_the_job(watched):
    def happening(batch, attempt):
        batch.become("ended", "TIMEOUT (TimeLimit)", reclaimed=True)
        attempt.put_answer(facts={"steps": 3})

    ending, _ = watched(Batch(), happening)
    assert ending == {"facts": {"steps": 3}}


def test_job_that_ends_without_an_answer_fails_with_the_last_lines(watched):
    def happening(batch, attempt):
        batch.become("ended", "FAILED (NonZeroExitCode)")
        attempt.log.write_text("srun: error: n1: task 0: Killed\n")
        attempt.log_of(0).write_text("one\nNo module named strategos\n")

    failure, _ = watched(Batch(), happening)
    assert failure.what == "ended as FAILED (NonZeroExitCode)"
    assert "chief-0:\n      one\n      No module named strategos" in failure.hint
    assert not failure.preempted


def test_time_limit_is_no_failure_of_the_training(watched):
    def happening(batch, attempt):
        batch.become("ended", "TIMEOUT (TimeLimit)", reclaimed=True)

    failure, _ = watched(Batch(), happening)
    assert failure.preempted


@pytest.mark.parametrize("hopeless, least", [(False, 60), (True, 0)])
def test_job_that_waits_too_long_is_named_with_the_reason(watched, hopeless, least):
    batch = Batch()
    batch.become("waiting", "PENDING (BadConstraints)", hopeless=hopeless)
    with pytest.raises(UserError, match=r"Slurm job 1 .*\(BadConstraints\)") as raised:
        watched(batch)
    assert ("within 60 s" in str(raised.value)) == bool(least)


def test_controller_that_does_not_answer_is_not_a_job_that_is_gone(watched):
    def starts(batch, attempt):
        batch.become("running", "RUNNING")
        batch.answers = False

    def beats(number):
        def beat(batch, attempt):
            run = attempt.gang / "1"
            run.mkdir(parents=True, exist_ok=True)
            (attempt.gang / "call.json").write_text('{"id": "1"}')
            (run / "run.json").write_text(json.dumps({"beat": number}))

        return beat

    def ends(batch, attempt):
        attempt.put_answer(facts={})

    happenings = [starts, *map(beats, range(100)), ends]
    ending, seconds = watched(Batch(), *happenings)
    assert ending == {"facts": {}} and seconds >= 100


@pytest.mark.parametrize("unreadable", [1, 20])
def test_heartbeat_that_cannot_be_read_for_a_while_ends_no_job(watched, unreadable):
    """Longer after the start than a job may take to start."""

    def beats(number):
        def beat(batch, attempt):
            batch.become("running", "RUNNING")
            run = attempt.gang / "1"
            run.mkdir(parents=True, exist_ok=True)
            (attempt.gang / "call.json").write_text('{"id": "1"}')
            readable = number % 60 < 60 - unreadable
            text = json.dumps({"beat": number})
            (run / "run.json").write_text(text if readable else "")

        return beat

    def ends(batch, attempt):
        attempt.put_answer(facts={})

    ending, seconds = watched(Batch(), None, None, *map(beats, range(150)), ends)
    assert ending == {"facts": {}} and seconds >= 150


def test_silent_job_and_job_without_tasks_fail(watched):
    def starts(batch, attempt):
        batch.become("running", "RUNNING")

    failure, seconds = watched(Batch(), starts)
    assert failure.what == "started no task within 40 s" and seconds > 40
    assert not failure.preempted


def test_only_the_same_training_is_joined(attempts):
    mine = attempts(strategy="auto")
    first = mine.new()
    assert mine.is_same(first)
    assert not attempts(strategy="one_device").is_same(first)
    second = mine.new()
    assert first.is_revoked and not mine.is_same(first) and mine.is_same(second)
    assert [each.folder.name for each in mine.all()] == ["0001", "0002"]


def test_job_that_is_being_deleted_is_not_joined(attempts):
    mine = attempts(strategy="auto")
    batch = Old()
    folder = str(mine.new().folder)
    batch.become("running", "Being deleted", folder=folder, cancelled=True)
    spec, operation = mine.all()[0].request()
    spec = dataclasses.replace(spec, model_dir="model", log_dir="log")
    with pytest.raises(UserError, match="seen"):
        training.launch(spec, operation, batch)
    assert batch.job.id == "2"


class Old(Batch):
    """A batch system with a job that a launcher with other settings left."""

    cancelled = submitted = False

    def cancel(self, job):
        self.cancelled = True
        self.become("ended", "CANCELLED", cancelled=True)

    def submit(self, name, attempt):
        assert self.cancelled
        attempt.put_answer(error={"type": "UserError", "message": "seen"})
        self.job = Job("2", str(attempt.folder), "ended", "COMPLETED")
        return self.job


@pytest.mark.parametrize("exists", [True, False])
def test_job_of_other_settings_ends_before_the_next_one_is_submitted(
    attempts, exists, tmp_path
):
    folder = attempts(strategy="one_device").new().folder if exists else tmp_path / "no"
    batch = Old()
    batch.become("running", "RUNNING", folder=str(folder))
    spec, operation = attempts(strategy="auto").new().request()
    with pytest.raises(UserError, match="seen"):
        training.launch(spec, operation, batch)
    assert batch.cancelled
