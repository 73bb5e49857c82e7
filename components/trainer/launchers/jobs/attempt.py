"""The folder of one attempt to train as a job, shared by the launcher and the job.

    <checkpoint folder>/jobs/<number>/
      request.json   the training and its operation, written before the job is submitted
      gang/          where the run and its tasks meet, see `hosts/rendezvous.py`
      <n>.log        output of the n-th task
      job.log        output of the job itself
      events.jsonl   progress events, which the launcher passes on
      answer.json    how the training ended: the last file that the job writes
      launcher.json  heartbeat of the launcher that waits for this attempt
      revoked        written by a launcher that no longer waits for this attempt

In an object store, where files neither grow nor change often, `gang/`, logs and events
are in a folder of each machine instead, and the job copies to the store:

      report.json    the job's heartbeat and its last events

Each attempt has its own folder, so a process that outlives its job meets no task of a
later attempt. It finds `revoked` and ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from strategos.components.errors import required
from strategos.components.files import places
from strategos.components.files.places import Place, RemotePath
from strategos.components.trainer.distribution.environment import ClusterSpec, Task
from strategos.components.trainer.distribution.strategy import Choice, processes
from strategos.components.trainer.hosts import rendezvous
from strategos.components.trainer.hosts.rendezvous import Rendezvous
from strategos.components.trainer.launchers.jobs import input_files
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

CODE_VARIABLE = "STRATEGOS_CODE"
"""Environment variable of a task with the fingerprint of the user's code."""

REJECTED = "cannot use the folder of its attempt"
"""Printed before the reason by a task that cannot answer in any other way."""

_REQUEST, _ANSWER, _REVOKED = "request", "answer", "revoked"
_LAUNCHER, _REPORT = "launcher", "report"
_REPORTED_EVENTS = 200
_TRIES = 5  # of half a minute each
_PAUSE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt to train as a job.

    Attributes:
      folder: Its folder, which all machines of the job share under the same path.
      scratch: Folder for files that grow or change often; by default `folder`.
      modules: Folder of this machine with the user's modules; by default the folder in
        the request.
      look_seconds: Interval at which launcher and tasks look for each other's files.
    """

    folder: Place
    scratch: Path | None = None
    modules: str = ""
    look_seconds: ClassVar[float] = 0.5

    @property
    def gang(self) -> Path:
        """Folder where the run and the tasks of the job meet."""
        return self._own / "gang"

    @property
    def events(self) -> Path:
        """File with the progress events of the job."""
        return self._own / "events.jsonl"

    @property
    def log(self) -> Path:
        """Output of the job itself, as opposed to its tasks."""
        return self._own / "job.log"

    def log_of(self, rank: int) -> Path:
        """Output of the task `rank`, from 0."""
        return self._own / f"{rank}.log"

    @property
    def _own(self) -> Path:
        return cast(Path, self.scratch or self.folder)  # of a URL, always `scratch`

    @property
    def here(self) -> Attempt:
        """The attempt in a folder of this machine, with the paths of this machine."""
        return self

    @property
    def exists(self) -> bool:
        """Whether the folder has a request, written before a job is submitted."""
        return self._files.get(_REQUEST) is not None

    @property
    def is_revoked(self) -> bool:
        """Whether no launcher waits for this attempt any longer."""
        return self._files.get(_REVOKED) is not None

    def revoke(self) -> None:
        """Makes processes that are left of this attempt end."""
        self._files.put(_REVOKED, {})

    def beat(self) -> None:
        """Records that a launcher waits for this attempt."""
        with contextlib.suppress(OSError):  # the volume is full, or away for a while
            self._files.put(_LAUNCHER, {"beat": time.time()})

    def launcher_beat(self) -> Any:
        """A value that changes while a launcher waits; None before the first one."""
        return (self._files.get(_LAUNCHER) or {}).get("beat")

    @property
    def launcher_timeout(self) -> float | None:
        """Seconds without a launcher after which the job ends; None: it never does."""
        return self._asked.get("launcher_timeout")

    def answer(self) -> dict[str, Any] | None:
        """How the training ended: `facts`, `error` or `lost`; None if it has not."""
        return self._files.get(_ANSWER)

    def put_answer(self, **answer: Any) -> None:
        """Writes how the training ended."""
        self._files.put(_ANSWER, answer)

    def request(self) -> tuple[WorkerSpec, Operation]:
        """The training of this attempt, and its operation."""
        operation = Operation.from_json(self._asked["operation"])
        spec = WorkerSpec.from_json(self._asked["spec"])
        return dataclasses.replace(spec, folder=self.modules or spec.folder), operation

    @property
    def is_elastic(self) -> bool:
        """Whether the training goes on without lost workers (`min_workers`)."""
        return self.request()[1].min_workers is not None

    @property
    def token(self) -> str:
        """A secret of this attempt, in a file that only its launcher and job read."""
        return self._asked["token"]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the job, by rank."""
        return tasks_of(self.request()[0].distribution)

    def heartbeat(self) -> Any:
        """A value that changes while the job trains; None before it starts."""
        call = Rendezvous(self.gang).get(rendezvous.CALL) or {}
        run = Rendezvous(self.gang / call.get("id", "-")).get(rendezvous.RUN) or {}
        return run.get("beat")

    @functools.cached_property  # nobody changes it
    def _asked(self) -> dict[str, Any]:
        return json.loads((self.folder / f"{_REQUEST}.json").read_text())

    @property
    def _files(self) -> Rendezvous:
        return Rendezvous(self.folder)


class RemoteAttempt(Attempt):
    """An attempt with a folder in an object store, see the module's docstring."""

    look_seconds: ClassVar[float] = 2.0  # a look is several requests, which cost

    def report(self) -> dict[str, Any]:
        """The job's last report: `beat`, `count` of events, and the last `events`."""
        return self._files.get(_REPORT) or {"beat": None, "count": 0, "events": []}

    def heartbeat(self) -> Any:
        """See `Attempt`."""
        return self.report()["beat"]

    @property
    def here(self) -> Attempt:
        """See `Attempt`; only after `fetch`."""
        return Attempt(required(self.scratch))

    def fetch(self, at: Callable[[str], str]) -> None:
        """Copies the request to `scratch`, which then is an attempt's folder, too.

        Args:
          at: Returns where this machine has the input at a path or URL.

        Raises:
          OSError: The store does not answer, or rejects the request.
        """
        spec = input_files.local(self.request()[0], at)
        request = {**self._asked, "spec": spec.to_json()}
        Rendezvous(required(self.scratch)).put(_REQUEST, request)

    def put_answer(self, **answer: Any) -> None:
        """See `Attempt`; insists for a while, because all work would be lost."""
        self.publish()
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                return super().put_answer(**answer)
            time.sleep(_PAUSE_SECONDS)
        super().put_answer(**answer)

    def publish(self) -> None:
        """Copies heartbeat and last events from `scratch`; called in the job."""
        lines: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            lines = self.events.read_text().splitlines()
        last = [json.loads(line) for line in lines[-_REPORTED_EVENTS:]]
        report = {"beat": super().heartbeat(), "count": len(lines), "events": last}
        with contextlib.suppress(OSError):  # the store does not answer for a while
            self._files.put(_REPORT, report)


def attempt_at(folder: str) -> Attempt:
    """The attempt in a folder.

    Args:
      folder: Path or URL.
    """
    place = places.at(folder)
    kind = RemoteAttempt if isinstance(place, RemotePath) else Attempt
    return kind(place)


class Attempts:
    """The attempts of one training, in the order of their numbers.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.
    """

    def __init__(self, spec: WorkerSpec, operation: Operation):
        self._spec = spec
        self._operation = operation
        self._folder = places.at(spec.checkpoint_dir).absolute() / "jobs"

    def new(self, launcher_timeout: float | None = None) -> Attempt:
        """Makes the next attempt, and revokes all earlier ones.

        Args:
          launcher_timeout: Seconds without a launcher after which the job ends; by
            default it never does.
        """
        numbers = [int(each.folder.name) for each in self.all()]
        folder = self._folder / f"{max(numbers, default=0) + 1:04}"
        for each in self.all():
            each.revoke()
        folder.mkdir(parents=True)
        spec = dataclasses.replace(
            self._spec,
            model_dir=str(folder / "model"),
            log_dir=str(folder / "logs"),
        )
        request = {
            "spec": spec.to_json(),
            "operation": self._operation.to_json(),
            "launcher_timeout": launcher_timeout,
            "token": uuid.uuid4().hex,
        }
        Rendezvous(folder).put(_REQUEST, request)
        return attempt_at(str(folder))

    def all(self) -> list[Attempt]:
        """All attempts, the oldest first."""
        return [attempt_at(str(path)) for path in sorted(self._folder.glob("[0-9]*"))]

    def is_same(self, attempt: Attempt) -> bool:
        """Whether an attempt is not revoked and trains the same, apart from outputs."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            spec, operation = attempt.request()
            theirs = dataclasses.replace(
                spec, model_dir=self._spec.model_dir, log_dir=self._spec.log_dir
            )
            both = (self._spec, theirs), (self._operation, operation)
            same = all(_plain(one) == _plain(other) for one, other in both)
            return same and not attempt.is_revoked
        return False

    def remove(self) -> None:
        """Removes the folders of all attempts."""
        places.remove(self._folder)


def tasks_of(distribution: Mapping[str, Any]) -> tuple[Task, ...]:
    """The tasks of a job, by rank; one task where the strategy has no workers.

    Args:
      distribution: `trainer.distribution`.
    """
    name = distribution.get("strategy", "auto")
    return Choice(name, "", *processes(name, distribution, ClusterSpec())).tasks


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value.to_json(), default=os.fspath))
