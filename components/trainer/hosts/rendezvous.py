"""The shared folder through which a run and its workers on other hosts exchange state.

    <root>/<pipeline>/Trainer/gang/
      call.json          the run that waits for workers: its id and its request
      <id>/run.json      the run's orders to its workers and its heartbeat
      <id>/<task>.json   a worker's last report
      <id>/<task>.beat   a worker's heartbeat
      <id>/<task>.events a worker's progress events

All hosts mount this folder. Each file has one writer, who replaces the file as a whole,
so that readers never see half of it. A process counts as alive while its heartbeat
changes, whatever the heartbeat's value: the clocks of the hosts need not agree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from strategos.components.errors import UserError
from strategos.components.files import storage
from strategos.components.files.filesystems import is_remote
from strategos.components.files.places import Place
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import fingerprint

CALL, RUN = "call", "run"
HEARTBEAT_SECONDS = 0.5
LOST_SECONDS = 6.0
"""Seconds without a changed heartbeat after which a process counts as lost."""

_LOOK_SECONDS = 1.0  # one look adds at most this to the measured silence
_SAMPLE_BYTES = 1 << 16


def folder_of(model_dir: str) -> Path:
    """Returns the folder in which the run and the workers of a Trainer meet.

    Args:
      model_dir: Folder that the Trainer writes the model to.

    Raises:
      UserError: The folder is remote, so that hosts cannot share it as files.
    """
    if is_remote(model_dir):
        raise UserError(
            "workers meet under run.root, which is "
            f"{model_dir.partition('://')[0]}:// here",
            key="trainer.distribution.launcher",
            received="external",
            remedy="Use a folder on a file system that all hosts share, or `launcher: "
            "local`.",
        )
    return Path(model_dir).parents[1] / "gang"


class Rendezvous:
    """JSON files in a shared folder, each replaced as a whole.

    Args:
      folder: Folder of the files; created with the first file.
    """

    def __init__(self, folder: Place):
        self.folder = folder

    def put(self, name: str, content: Mapping[str, Any]) -> None:
        """Replaces the file `name`.json by `content`."""
        text = json.dumps(content, default=str)
        storage.write(str(self.folder / f"{name}.json"), text)

    def get(self, name: str) -> dict[str, Any] | None:
        """The content of the file `name`.json; None if it is missing or unreadable."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / f"{name}.json").read_text())
        return None

    def remove(self, name: str) -> None:
        """Removes the file `name`.json if it exists."""
        storage.remove(str(self.folder / f"{name}.json"))

    def open_run(self, call: Mapping[str, Any]) -> Rendezvous:
        """Announces a run that waits for workers; removes the files of earlier runs.

        Args:
          call: Spec, operation and fingerprints as JSON: workers need these to join.

        Returns:
          The new run's own rendezvous, in a subfolder named by the run's id.
        """
        for old in self.folder.glob("*/"):
            shutil.rmtree(str(old), ignore_errors=True)
        run = Rendezvous(self.folder / uuid.uuid4().hex[:12])
        run.put(RUN, {})
        self.put(CALL, {**call, "id": run.folder.name})
        return run


class HeartbeatMonitor:
    """Decides whether a process is lost, from its heartbeats as read here.

    One look adds at most a second to the silence: a longer gap between two looks means
    that this process or the file system was paused, not that the other process was.

    Args:
      clock: Monotonic time in seconds.
      limit: Seconds without a changed heartbeat after which the process is lost.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        limit: float = LOST_SECONDS,
    ):
        self._clock = clock
        self._limit = limit
        self._value: Any = None
        self._looked = clock()
        self._silence = 0.0

    def is_lost(self, value: Any) -> bool:
        """Records the heartbeat that was read; returns whether it changed too long ago.

        Args:
          value: The heartbeat as read now, in any form that `!=` compares.
        """
        now = self._clock()
        self._silence += min(now - self._looked, _LOOK_SECONDS)
        if value != self._value:
            self._value, self._silence = value, 0.0
        self._looked = now
        return self._silence > self._limit


def fingerprints(spec: WorkerSpec) -> dict[str, str]:
    """Hashes of everything that must be the same on all hosts, as this host sees it.

    Args:
      spec: The training, with the paths of this host.

    Returns:
      A hash for each of code, training data, evaluation data, transform graph, schema.
    """
    return {
        "code": fingerprint.fingerprint(spec.folder, spec.module, files=spec.files),
        "training data": _hash(spec.train_files),
        "evaluation data": _hash(spec.eval_files),
        "transform graph": _hash(sorted(map(str, _files(spec.transform_graph)))),
        "schema": _hash([spec.schema_file]),
    }


def _files(folder: str) -> list[Path]:
    paths = Path(folder).rglob("*") if folder else ()
    return [path for path in paths if path.is_file()]


def _hash(paths: Any) -> str:
    """Hash of names, sizes, beginnings and ends; large files are not read whole."""
    digest = hashlib.sha256()
    for path in map(Path, paths):
        digest.update(path.name.encode() + b"\0")
        with contextlib.suppress(OSError), path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _SAMPLE_BYTES))
            digest.update(f"{size}".encode() + file.read())
    return digest.hexdigest()[:16]


def rebased(spec: WorkerSpec, old: str, new: str) -> WorkerSpec:
    """The spec for a host that mounts the folder `old` as `new`.

    Args:
      spec: The training, with the paths of the run's host.
      old: Absolute path of a folder on the run's host.
      new: Path of the same folder on this host.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        inside = isinstance(value, str) and (value + "/").startswith(old + "/")
        return new + value[len(old) :] if inside else value

    return dataclasses.replace(spec, **{k: moved(v) for k, v in vars(spec).items()})
