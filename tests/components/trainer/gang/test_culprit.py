"""Which of several failures of a gang is reported, and how."""

from __future__ import annotations

import faulthandler
import os
import signal
import time

import pytest

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.gang import gang, watchdog
from strategos.components.worker_process import WorkerError

CHIEF, FIRST = Task("chief"), Task("worker", 0)
CLUSTER = ClusterSpec({"chief": ("127.0.0.1:1000",), "worker": ("127.0.0.1:1001",)})
LIMITS = watchdog.Limits(start_timeout=20, stall_timeout=20, farewell=0.5, echo=0.5)


class UnavailableError(Exception):
    """Has the class name that TensorFlow uses for the loss of another task."""


def run(work, restarts=1):
    limits = watchdog.Limits(**{**vars(LIMITS), "max_restarts": restarts})
    return gang.run((CHIEF, FIRST), lambda _: CLUSTER, work, limits)


def run_alone(work, restarts=1):
    limits = watchdog.Limits(**{**vars(LIMITS), "max_restarts": restarts})
    return gang.run((CHIEF,), lambda _: ClusterSpec(), work, limits)


def kill_self(sig=signal.SIGKILL):
    faulthandler.disable()  # pytest's own
    os.kill(os.getpid(), sig)
    time.sleep(60)


def test_the_failure_that_caused_the_others_is_reported(tmp_path):
    def work(cluster, reporter, attempt):
        if cluster.task == CHIEF:
            raise UnavailableError("connection to worker 0 lost")
        time.sleep(0.2)
        raise KeyError("who")

    with pytest.raises(WorkerError, match=r"^worker-0: KeyError: 'who'$"):
        run(work, restarts=0)


@pytest.mark.parametrize("kind", [AttributeError, TypeError, NotImplementedError])
def test_an_error_of_python_code_is_raised_without_a_restart(tmp_path, kind):
    def work(cluster, reporter, attempt):
        (tmp_path / f"attempt-{attempt}").touch()
        raise kind("no such thing")

    with pytest.raises(WorkerError, match=f"^{kind.__name__}: no such thing$"):
        run_alone(work, restarts=3)
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-0"]


def test_an_error_of_python_code_after_a_lost_connection_is_tried_again():
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {}
        try:
            raise UnavailableError("connection lost")
        except UnavailableError:
            raise TypeError("None has no length")  # noqa: B904

    assert run_alone(work) == {"restarts": 1}


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_loss_of_another_task_is_not_the_users_error(wrapped):
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {"fine": True}
        try:
            raise UnavailableError("connection lost")
        except UnavailableError as error:
            if wrapped:
                raise UserError("training fails: connection lost") from error
            raise

    assert run(work) == {"fine": True, "restarts": 1}


def test_being_killed_again_and_again_from_outside_counts_restarts():
    def work(cluster, reporter, attempt):
        if cluster.task == FIRST:
            kill_self()
        time.sleep(60)

    began = time.monotonic()
    pattern = r"Worker-0 was killed by SIGKILL\. .*restarted 2 times .*from outside"
    with pytest.raises(UserError, match=pattern):
        run(work, restarts=2)
    assert time.monotonic() - began < 30  # the gang did not wait for the sleeping task


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda: os._exit(7), "ended with exit code 7"),
        (lambda: kill_self(signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: kill_self(signal.SIGABRT), "was killed by SIGABRT"),
    ],
)
def test_a_task_that_ends_without_a_report_is_reported(end, message):
    def work(cluster, reporter, attempt):
        if cluster.task == FIRST:
            end()
        time.sleep(60)

    with pytest.raises(WorkerError, match=f"^Worker-0 {message}. .*allows no restart"):
        run(work, restarts=0)


def test_of_failures_that_all_look_like_echoes_the_first_is_reported(capfd):
    def work(cluster, reporter, attempt):
        if cluster.task == FIRST:
            raise UnavailableError("503: the bucket does not answer")
        time.sleep(0.3)
        raise UnavailableError("Connection reset by peer")

    cause = "worker-0: UnavailableError: 503: the bucket does not answer"
    with pytest.raises(WorkerError, match=rf"^{cause}\. The gang was restarted 1"):
        run(work)
    log = capfd.readouterr().err
    assert f"restarting the gang (1 of 1): {cause}" in log
    assert log.count("Traceback") == 4 and "Connection reset by peer" in log


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_does_not_answer_a_process_on_its_own_is_named_and_asked_again(
    tmp_path, wrapped
):
    def work(cluster, reporter, attempt):
        try:
            raise UnavailableError("503: the bucket does not answer")
        except UnavailableError as error:
            if wrapped:
                raise UserError(f"training fails: {error}") from error
            raise

    events.open_sink(str(tmp_path / "events"), node="Trainer")
    try:
        with pytest.raises(
            (UserError, WorkerError), match="(?s)503.* restarted 1 time without"
        ):
            run_alone(work)
    finally:
        events.open_sink(None)
    written = (tmp_path / "events").read_text()
    assert "the trainer failed (" in written and "another task" not in written


def test_a_report_cut_off_by_death_is_ignored():
    def work(cluster, reporter, attempt):
        if attempt == 1:
            return {}
        if cluster.task == FIRST:
            os.set_blocking(reporter._descriptor, False)
            os.write(reporter._descriptor, b'{"done": [')
            kill_self()
        time.sleep(60)

    assert run(work) == {"restarts": 1}
