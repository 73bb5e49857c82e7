"""`strategos worker`: joins a run that waits for workers, and trains one task of it.

A worker consists of two processes. The first (`join`) finds the run, sends heartbeats
and starts the second, the host of the gang. The host (`train`) forks the task whenever
the run starts an attempt, and reports how the attempt ended.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strategos.components import events, worker_process
from strategos.components.errors import UserError, required
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import gang, host, ports, watchdog
from strategos.components.trainer.gang.task_process import Failure
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts.membership import Membership
from strategos.components.trainer.hosts.rendezvous import HeartbeatMonitor, Rendezvous
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import WorkerError

_LOOK_SECONDS = 0.3
_PORT_SECONDS = 5.0  # in which a former worker's port may become free
# Sent to this process itself. Not SIGINT: a shell has jobs started by `&` ignore it.
_RUN_ENDED = signal.SIGUSR1


class _EndedRunError(BaseException):
    """The run no longer needs this worker; raised by a signal handler, at any point."""


def train(
    membership: Membership,
    cluster: ClusterSpec,
    work: gang.Work,
    limits: watchdog.Limits,
    beside: Callable[[], None] = lambda: None,
) -> dict[str, Any] | None:
    """Runs this host's task in each attempt that the run starts; called in the host.

    Args:
      membership: The worker's membership in the run.
      cluster: All tasks, and the task of this host.
      work: Called in the task's fork, see `gang.run`.
      limits: Time-outs and restarts.
      beside: See `gang.run`.

    Returns:
      The chief's facts when it has trained; None for another task, when the run ends.

    Raises:
      UserError, WorkerError: The run has failed, see `Membership.orders`.
      SystemExit: This process received SIGTERM; its task has ended.
    """
    outside = membership.outside
    with gang.Gang(
        [required(cluster.task)],
        work,
        limits,
        outside=outside,
        beside=lambda _: beside(),
    ) as here:
        while True:
            try:
                if not membership.await_go(here.check):
                    return None
                now = cluster.without(membership.lost)
                answer = here.attempt(now, membership.generation)
                if now.is_chief:
                    return {**answer, "restarts": membership.generation}
                if membership.await_end(here.check):
                    return None
            except watchdog.NewAttemptError as wanted:
                watchdog.log(f"{wanted}: starting again")
            except watchdog.AttemptFailedError as failed:
                watchdog.log(str(failed))
                membership.report(
                    "failed", failure=_failure_report(failed.failure, failed.stepped)
                )
                if membership.await_end(here.check):
                    return None
            except SystemExit:
                membership.report("left")
                raise


@contextmanager
def failures_reported(membership: Membership) -> Iterator[None]:
    """Reports a user's error that this host raises outside of its task to the run.

    Args:
      membership: The worker's membership in the run.

    Raises:
      UserError: As raised inside of the context.
    """
    try:
        yield
    except UserError as error:
        failure = Failure(membership.name, "failed", error)
        membership.report("failed", failure=_failure_report(failure))
        raise


def _failure_report(failure: Failure, stepped: bool = True) -> dict[str, Any]:
    """A failure as JSON-able values, as `external.py` reads them."""
    error = failure.error and worker_process.summary(failure.error)
    return {**vars(failure), "error": error, "stepped": stepped}


def join(trainer_folder: str, code_folder: str, timeout: float) -> None:
    """Joins the run that waits for workers, as the task that TF_CONFIG names.

    Args:
      trainer_folder: The Trainer's folder under the root, as this host sees it.
      code_folder: The user's modules on this host.
      timeout: Seconds to wait for a run.

    Raises:
      UserError: No run waits for workers, TF_CONFIG is missing or invalid, this host's
        code or data differ from the run's, or the run has failed.
      WorkerError: The run has failed by an internal error.
    """
    cluster = ClusterSpec.from_environment()
    if cluster.task is None:
        raise UserError(
            "TF_CONFIG is not set, so this process is no task of "
            'a cluster. Set it to {"cluster": {"chief": ["HOST:PORT"], "worker": '
            '["HOST:PORT"]}, "task": {"type": "worker", "index": 0}}, with the same '
            "cluster on every host."
        )
    check_port(cluster)
    shared = Rendezvous(rendezvous.folder_of(f"{trainer_folder}/model/0"))
    call = _await_call(shared, timeout)
    membership = _register(shared, call, cluster)
    _take_part(membership, _spec(call, trainer_folder, code_folder), call)


def join_job(
    folder: Path, cluster: ClusterSpec, timeout: float, code_folder: str = ""
) -> None:
    """Joins the run of the job that this process belongs to, as one of its tasks.

    Args:
      folder: The folder where the run and the tasks of the job meet.
      cluster: All tasks, and the task of this process.
      timeout: Seconds to wait for the run.
      code_folder: The user's modules on this host; by default at the run's path.

    Raises:
      UserError, WorkerError: See `join`.
    """
    shared = Rendezvous(folder)
    call = _await_call(shared, timeout)
    membership = _register(shared, call, cluster)
    spec = WorkerSpec.from_json(call["spec"])
    spec = dataclasses.replace(spec, folder=code_folder or spec.folder)
    _take_part(membership, spec, call)


def _register(
    shared: Rendezvous, call: Mapping[str, Any], cluster: ClusterSpec
) -> Membership:
    folder = shared.folder / call["id"]
    membership = Membership(folder, cluster, uuid.uuid4().hex)
    membership.join()
    return membership


def _take_part(
    membership: Membership, spec: WorkerSpec, call: Mapping[str, Any]
) -> None:
    """Trains as a member of the run until the run ends."""
    folder = membership.folder
    _reject_differences(membership, spec, call["fingerprints"])
    watchdog.log(f"strategos worker: joining run {folder.name} as {membership.name}")
    events.open_sink(str(folder / f"{membership.name}.events"))
    with _heartbeat(membership, folder):
        _run_host(membership, {"spec": spec.to_json(), "operation": call["operation"]})


def check_port(cluster: ClusterSpec) -> None:
    """Waits a little for the port of this host's task.

    Args:
      cluster: All tasks, and the task of this host.

    Raises:
      UserError: Another process uses the port, or the system does not allow it.
    """
    task = required(cluster.task)
    host, port = cluster.address_of(task)
    prefix = f"TF_CONFIG gives {task.name} the address {host}:{port}, but"
    until = time.monotonic() + _PORT_SECONDS
    try:
        while ports.is_taken(port):
            if time.monotonic() > until:
                raise UserError(
                    f"{prefix} another process on this host uses port {port}. End it "
                    "(`ss -ltnp` names it), or choose another port on all hosts."
                )
            time.sleep(_LOOK_SECONDS)
    except OSError as error:
        raise UserError(
            f"{prefix} this host allows no server on port {port}: {error.strerror}. "
            "Choose another port on all hosts."
        ) from None


def _await_call(shared: Rendezvous, timeout: float) -> dict[str, Any]:
    """Waits for the call of a run with a heartbeat that changes."""
    until, before = time.monotonic() + timeout, None
    watchdog.log(f"strategos worker: waiting for a run at {shared.folder}")
    while time.monotonic() < until:
        call = shared.get(rendezvous.CALL)
        if call:
            orders = Rendezvous(shared.folder / call["id"]).get(rendezvous.RUN) or {}
            now = (call["id"], orders.get("beat"))
            if before and before[0] == now[0] and before[1] != now[1]:
                return call
            before = now
        time.sleep(_LOOK_SECONDS)
    raise UserError(
        f"within that time no run has called for workers at {shared.folder}",
        key="trainer.distribution.start_timeout",
        received=f"{timeout:g}s",
        remedy="Start `strategos run` with `trainer.distribution.launcher: external` "
        "on a host that shares this folder.",
    )


def _spec(call: Mapping[str, Any], trainer_folder: str, code: str) -> WorkerSpec:
    """The training with the paths of this host."""
    spec = WorkerSpec.from_json(call["spec"])
    theirs = str(Path(spec.model_dir).parents[2])
    root = str(Path(trainer_folder).parent)
    ours = rendezvous.rebased(spec, theirs, root)
    for folder in (ours.model_dir, ours.log_dir, ours.checkpoint_dir):
        # This host writes and removes these folders, so a call must not name others.
        if not Path(os.path.normpath(folder)).is_relative_to(os.path.normpath(root)):
            raise UserError(
                f"The run that waits for workers wants to write {folder}, which is not "
                f"below {root}. Run `strategos run` and `strategos worker` with the "
                "same run.root, and check who can write to it."
            )
    return dataclasses.replace(ours, folder=code)


def _reject_differences(
    membership: Membership, spec: WorkerSpec, expected: Mapping[str, str]
) -> None:
    """Rejects this host if its code or data differ from the run's."""
    files = (*spec.train_files, *spec.eval_files, spec.schema_file)
    local = (file for file in files if file and not is_remote(file))
    unseen = [file for file in local if not os.path.exists(file)]
    fingerprints = rendezvous.fingerprints(spec)
    differing = [what for what in expected if fingerprints[what] != expected[what]]
    if unseen:
        reason = f"{unseen[0]} does not exist here. All hosts must share run.root."
    elif differing:
        reason = (
            f"its {' and '.join(differing)} differs from the run's. User code "
            f"is read from {spec.folder}, data from "
            f"{Path(spec.checkpoint_dir).parents[2]}: both must be the same on all "
            "hosts."
        )
    else:
        return
    membership.report("rejected", reason=reason)
    raise UserError(f"{membership.name}: {reason}")


@contextmanager
def _heartbeat(membership: Membership, folder: Path) -> Iterator[None]:
    """Sends heartbeats, and ends this worker when its run is lost or interrupted."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_send_heartbeats, args=(membership, folder, ended), daemon=True
    )
    signal.signal(_RUN_ENDED, _end_with_run)
    thread.start()
    try:
        yield
    except _EndedRunError:
        membership.orders()  # raises if the run was interrupted
        raise UserError(
            f"{membership.name} lost its run: no heartbeat for "
            f"{rendezvous.LOST_SECONDS:g} s. Start the run and its workers again: "
            "training resumes from its last checkpoint."
        ) from None
    finally:
        signal.signal(_RUN_ENDED, signal.SIG_IGN)
        ended.set()
        thread.join()
        with suppress(UserError):  # another worker has registered for the task
            membership.report("left")


def _end_with_run(*_: object) -> None:
    raise _EndedRunError


def _send_heartbeats(
    membership: Membership, folder: Path, ended: threading.Event
) -> None:
    """Writes heartbeats; interrupts this process once when the run is lost.

    Also when the run was interrupted: the host does not read orders while it exports.
    """
    run, monitor, beats, signalled = Rendezvous(folder), HeartbeatMonitor(), 0, False
    while not ended.wait(rendezvous.HEARTBEAT_SECONDS):
        beats += 1
        with suppress(OSError):  # a later run has removed the folder
            (folder / f"{membership.name}.beat").write_text(str(beats))
        orders = run.get(rendezvous.RUN) or {}
        how = (orders.get("over") or {}).get("how")
        gone = how in (None, "interrupted") and monitor.is_lost(orders.get("beat"))
        lost = gone or (how == "interrupted" and membership.may_leave())
        if not signalled and lost:
            signalled = True
            os.kill(os.getpid(), _RUN_ENDED)


def _run_host(membership: Membership, request: dict[str, Any]) -> None:
    """Runs the host of the gang until the run ends, and again if the host is lost."""
    name = membership.name
    while True:
        begun = membership.orders().get("generation", 0)
        try:
            facts = host.run({**request, "membership": membership.to_json()}, name)
        except (UserError, WorkerError) as error:
            reported = membership.resume() in ("failed", "left")
            if not reported or membership.generation < begun:  # killed before
                membership.generation = max(membership.generation, begun)
                lost = Failure(name, "lost the host of its task", hint=str(error))
                membership.report("failed", failure=_failure_report(lost))
        else:
            membership.resume()
            if facts:
                membership.report("done", facts=facts)
        if membership.await_end(lambda: None):
            return
