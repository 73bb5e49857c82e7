"""A worker's side of a run that waits for workers: `strategos worker`.

Two processes speak for a worker. The one that was started (`join`) finds the run, shows
that it is alive, and starts the host of the gang; that one (`train`) forks the task
whenever the run says so, and says how it went.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from strategos.components import events, worker_process
from strategos.components.errors import UserError
from strategos.components.trainer import gang, watch
from strategos.components.trainer.cluster import ClusterSpec
from strategos.components.trainer.launchers import local, ports, rendezvous
from strategos.components.trainer.launchers.rendezvous import Board, Pulse
from strategos.components.trainer.member import Failure
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import WorkerError

_LOOK_SECONDS = 0.3
_PORT_SECONDS = 5.0  # in which a former worker's port may become free
_TRAINED = ("trained", "done")
_RUN_ENDED = signal.SIGUSR1  # to oneself; a shell's `&` has SIGINT ignored


class _InterruptedRunError(UserError):
    """The run was asked to end."""


class _EndedRunError(BaseException):
    """The run needs this worker no longer; raised in the midst of anything."""


class Seat:
    """A worker's place in a run.

    Args:
      folder: The run's own folder.
      cluster: All tasks, and which of them this worker is.
      session: Tells this worker from one before it at the same place.
    """

    def __init__(self, folder: str | Path, cluster: ClusterSpec, session: str):
        self._board = Board(Path(folder))
        self._cluster = cluster
        self._session = session
        self._looked = 0.0
        self._orders: dict[str, Any] = {}
        self._told: tuple[str, int] = ("", -1)
        self.generation = 0

    @property
    def name(self) -> str:
        """The task's."""
        return self._cluster.task.name

    def say(self, state: str, **more: Any) -> None:
        """Tells the run how this worker is, once."""
        if (state, self.generation) == self._told:
            return
        self._told = (state, self.generation)
        said = {
            "task": self.name,
            "state": state,
            "generation": self.generation,
            "session": self._session,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cluster": {k: list(v) for k, v in self._cluster.addresses.items()},
        }
        self._board.put(self.name, {**said, **more})

    def resume(self) -> str:
        """Goes on from what the host has said; returns its last state."""
        said = self._board.get(self.name) or {}
        if said.get("session") != self._session:
            return ""
        self.generation = said["generation"]
        self._told = (said["state"], self.generation)
        return said["state"]

    def to_json(self) -> dict[str, Any]:
        """As JSON-able values, for another process of this worker."""
        return {"folder": str(self._board.folder), "session": self._session}

    def orders(self) -> dict[str, Any]:
        """What the run wants now.

        Raises:
          UserError: It has failed, or was interrupted; of the class of its own error.
          WorkerError: It has failed by an error of ours.
        """
        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            self._orders = self._board.get(rendezvous.RUN) or self._orders
        over = self._orders.get("over") or {}
        if over.get("how") == "failed":
            raise worker_process.error_of(over["error"])
        if over.get("how") == "interrupted":
            raise _InterruptedRunError(
                "The run was interrupted. Start it again, and the workers: training "
                "goes on from its last checkpoint."
            )
        return self._orders

    def await_go(self, check: Callable[[], None]) -> bool:
        """Waits until all tasks are there and the run lets them go.

        False where it is over instead: the chief had no more need of this one.

        Args:
          check: Called now and then; what it raises ends the waiting.
        """
        while True:
            check()
            orders = self.orders()
            generation = orders.get("generation", 0)
            if orders.get("over"):
                return False
            if not orders.get("go"):
                self.generation = generation
                self.say("ready")
            elif self._told == ("ready", generation):
                return True
            else:
                self.say("arrived")  # in the middle of an attempt: the next is ours
            time.sleep(_LOOK_SECONDS / 2)

    def await_end(self, check: Callable[[], None]) -> bool:
        """Waits until the run is over, or wants a new attempt: then False."""
        while True:
            check()
            orders = self.orders()
            if orders.get("over"):
                return True
            if orders.get("generation", 0) > self.generation:
                return False
            time.sleep(_LOOK_SECONDS / 2)

    def outside(self, done: bool) -> bool:
        """See `gang.Gang`: whether the others no longer need this task."""
        try:
            orders = self.orders()
        except _InterruptedRunError:
            return False  # `_beat` sees to it that the task is asked to save and end
        if orders.get("over"):
            return True
        if orders.get("generation", 0) > self.generation:
            raise watch.NewAttemptError(silent=orders["silent"])
        if not done and not self._serves:
            return False
        if done and not self._serves:
            self.say("trained")
        if self._cluster.is_chief:
            return all(map(self._has_trained, self._peers()))
        return self._has_trained(self._cluster.chief.name)

    def may_leave(self) -> bool:
        """After an interrupt: whether the chief does not save what this task holds."""
        chief = self._board.get(self._cluster.chief.name) or {}
        return not self._serves or chief.get("state") == "left"

    @property
    def _serves(self) -> bool:
        return watch.serves(self._cluster, self._cluster.task)

    def _peers(self) -> Iterator[str]:
        for task in self._cluster.tasks:
            if task != self._cluster.task and not watch.serves(self._cluster, task):
                yield task.name

    def _has_trained(self, name: str) -> bool:
        state = self._board.get(name) or {}
        mine = state.get("generation") == self.generation
        return mine and state.get("state") in _TRAINED


def train(
    seat: Seat, cluster: ClusterSpec, work: gang.Work, limits: watch.Limits
) -> dict[str, Any] | None:
    """In the host: runs this host's task whenever the run says so.

    Returns:
      The chief's facts; None for another task, when the run is over.
    """
    with gang.Gang([cluster.task], work, limits, outside=seat.outside) as here:
        while True:
            try:
                if not seat.await_go(here.check):
                    return None
                answer = here.attempt(cluster, seat.generation)
                if cluster.is_chief:
                    return {**answer, "restarts": seat.generation}
                if seat.await_end(here.check):
                    return None
            except watch.NewAttemptError as wanted:
                watch.say(f"{wanted}: starting again")
            except watch.AttemptFailedError as failed:
                watch.say(str(failed))
                seat.say("failed", failure=_told(failed.failure, failed.stepped))
                if seat.await_end(here.check):
                    return None
            except SystemExit:
                seat.say("left")
                raise


@contextmanager
def reported(seat: Seat) -> Iterator[None]:
    """Tells the run of a user's error in this host, outside of its task."""
    try:
        yield
    except UserError as error:
        failure = Failure(seat.name, "failed", error)
        seat.say("failed", failure=_told(failure))
        raise


def _told(failure: Failure, stepped: bool = True) -> dict[str, Any]:
    """A failure as JSON-able values; read by `external.py`."""
    error = failure.error and worker_process.summary(failure.error)
    return {**vars(failure), "error": error, "stepped": stepped}


def join(trainer_folder: str, code_folder: str, timeout: float) -> None:
    """Joins the run that waits for workers, as the task that TF_CONFIG names.

    Args:
      trainer_folder: The Trainer's folder under the root, as this host sees it.
      code_folder: The user's modules on this host.
      timeout: Seconds to wait for a run.

    Raises:
      UserError: There is none; this host is not as it should be; the run has failed.
      WorkerError: The run has failed by an error of ours.
    """
    cluster = ClusterSpec.from_environment()
    if cluster.task is None:
        raise UserError(
            "TF_CONFIG is not set, so this process has no place in "
            'a cluster. Set it to {"cluster": {"chief": ["HOST:PORT"], "worker": '
            '["HOST:PORT"]}, "task": {"type": "worker", "index": 0}}, with the same '
            "cluster on every host."
        )
    _check_port(cluster)
    board = Board(rendezvous.folder_of(f"{trainer_folder}/model/0"))
    call = _await_call(board, timeout)
    folder = board.folder / call["id"]
    seat = Seat(folder, cluster, uuid.uuid4().hex)
    spec = _spec(call, trainer_folder, code_folder)
    _refuse_difference(seat, spec, call["fingerprints"])
    watch.say(f"strategos worker: joining run {folder.name} as {seat.name}")
    events.open_sink(str(folder / f"{seat.name}.events"))
    with _alive(seat, folder):
        _host(seat, {"spec": spec.to_json(), "operation": call["operation"]})


def _check_port(cluster: ClusterSpec) -> None:
    address = cluster.addresses[cluster.task.type][cluster.task.index]
    port = int(address.rpartition(":")[2])
    given = f"TF_CONFIG gives {cluster.task.name} the address {address}, but"
    until = time.monotonic() + _PORT_SECONDS
    try:
        while ports.is_taken(port):
            if time.monotonic() > until:
                raise UserError(
                    f"{given} another process of this host uses port {port}. End it "
                    "(`ss -ltnp` names it), or choose another port on all hosts."
                )
            time.sleep(_LOOK_SECONDS)
    except OSError as error:
        raise UserError(
            f"{given} this host allows no server on port {port}: {error.strerror}. "
            "Choose another port on all hosts."
        ) from None


def _await_call(board: Board, timeout: float) -> dict[str, Any]:
    """The call of a run that is alive."""
    until, before = time.monotonic() + timeout, None
    watch.say(f"strategos worker: waiting for a run at {board.folder}")
    while time.monotonic() < until:
        call = board.get(rendezvous.CALL)
        if call:
            orders = Board(board.folder / call["id"]).get(rendezvous.RUN) or {}
            now = (call["id"], orders.get("beat"))
            if before and before[0] == now[0] and before[1] != now[1]:
                return call
            before = now
        time.sleep(_LOOK_SECONDS)
    raise UserError(
        f"Within {timeout:g} s (trainer.distribution.start_timeout) "
        f"no run has called for workers at {board.folder}. Start `strategos run` with "
        "`trainer.distribution.launcher: external` on a host that shares this folder."
    )


def _spec(call: Mapping[str, Any], trainer_folder: str, code: str) -> WorkerSpec:
    """What is trained, in the paths of this host."""
    spec = WorkerSpec.from_json(call["spec"])
    theirs = str(Path(spec.model_dir).parents[2])
    ours = rendezvous.rebased(spec, theirs, str(Path(trainer_folder).parent))
    return dataclasses.replace(ours, folder=code)


def _refuse_difference(
    seat: Seat, spec: WorkerSpec, expected: Mapping[str, str]
) -> None:
    """Refuses this host where it sees other code or data than the run does."""
    files = (*spec.train_files, *spec.eval_files, spec.schema_file)
    unseen = [file for file in files if not os.path.exists(file)]
    found = rendezvous.fingerprints(spec)
    differing = [what for what in expected if found[what] != expected[what]]
    if unseen:
        why = f"{unseen[0]} is not there. All hosts must share run.root."
    elif differing:
        why = (
            f"its {' and '.join(differing)} differs from that of the run. User code "
            f"is read from {spec.folder}, data from {Path(spec.model_dir).parents[2]}: "
            "both must be the same on all hosts."
        )
    else:
        return
    seat.say("refused", why=why)
    raise UserError(f"{seat.name}: {why}")


@contextmanager
def _alive(seat: Seat, folder: Path) -> Iterator[None]:
    """Shows that this worker is alive, and ends it when the run is not."""
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(seat, folder, ended), daemon=True)
    signal.signal(_RUN_ENDED, _end_with_run)
    thread.start()
    try:
        yield
    except _EndedRunError:
        seat.orders()  # says so itself if it was interrupted
        raise UserError(
            f"The run that {seat.name} has worked for is gone: no sign of life for "
            f"{rendezvous.LOST_SECONDS:g} s. Start it again, and the workers: training "
            "goes on from its last checkpoint."
        ) from None
    finally:
        signal.signal(_RUN_ENDED, signal.SIG_IGN)
        ended.set()
        thread.join()
        seat.say("left")


def _end_with_run(*_: object) -> None:
    raise _EndedRunError


def _beat(seat: Seat, folder: Path, ended: threading.Event) -> None:
    """Renews the sign of life; ends this worker once when the run is gone.

    Also when it was interrupted: the host of the gang may be where it does not look.
    """
    run, pulse, beats, told = Board(folder), Pulse(), 0, False
    while not ended.wait(rendezvous.BEAT_SECONDS):
        beats += 1
        with suppress(OSError):  # a later run has removed the folder
            (folder / f"{seat.name}.beat").write_text(str(beats))
        orders = run.get(rendezvous.RUN) or {}
        how = (orders.get("over") or {}).get("how")
        gone = how in (None, "interrupted") and pulse.is_lost(orders.get("beat"))
        if not told and (gone or (how == "interrupted" and seat.may_leave())):
            told = True
            os.kill(os.getpid(), _RUN_ENDED)


def _host(seat: Seat, request: dict[str, Any]) -> None:
    """Runs the host of the gang until the run is over; another when that is lost."""
    while True:
        try:
            facts = local.run_host({**request, "seat": seat.to_json()}, seat.name)
        except (UserError, WorkerError) as error:
            if seat.resume() != "failed":  # it could not say so itself
                lost = Failure(seat.name, "lost the host of its task", hint=str(error))
                seat.say("failed", failure=_told(lost))
        else:
            seat.resume()
            if facts:
                seat.say("done", facts=facts)
        if seat.await_end(lambda: None):
            return
