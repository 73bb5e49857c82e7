"""The folder under the root in which a run and its workers on other hosts meet.

    <root>/<pipeline>/Trainer/gang/
      call.json          the run that waits for workers: its id and its request
      <id>/run.json      what the run wants of them, renewed all the time
      <id>/<task>.json   what a worker says of itself
      <id>/<task>.beat   that it is alive, renewed all the time
      <id>/<task>.events its progress

All hosts see it through a shared file system. Each file has one writer, who replaces it
as a whole, so that nobody reads half of it. Life is told by files that change: clocks
of several hosts need not agree.
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
from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import fingerprint

CALL, RUN = "call", "run"
HEARTBEAT_SECONDS = 0.5
LOST_SECONDS = 6.0
"""Without a change of its file, somebody counts as gone."""

_LOOK_SECONDS = 1.0  # that one look may add to a silence
_SAMPLE_BYTES = 1 << 16


def folder_of(model_dir: str) -> Path:
    """The folder for the Trainer that writes the model to `model_dir`.

    Raises:
      UserError: It is not on a file system that hosts can share.
    """
    if is_remote(model_dir):
        raise UserError(
            f"trainer.distribution.launcher: workers meet under run.root, which is "
            f"{model_dir.partition('://')[0]}:// here. Use a folder on a file system "
            "that all hosts share, or `launcher: local`."
        )
    return Path(model_dir).parents[1] / "gang"


class Rendezvous:
    """JSON files in one folder.

    Args:
      folder: Made where missing.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, name: str, content: Mapping[str, Any]) -> None:
        """Replaces the file `name`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{name}-{uuid.uuid4().hex}"
        aside.write_text(json.dumps(content, default=str))
        aside.replace(self.folder / f"{name}.json")

    def get(self, name: str) -> dict[str, Any] | None:
        """The content of the file `name`, if there is one."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / f"{name}.json").read_text())
        return None

    def remove(self, name: str) -> None:
        """Removes the file `name`, if there is one."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def open_run(self, call: Mapping[str, Any]) -> Rendezvous:
        """A board for a new run that calls for workers; earlier runs' are removed."""
        for old in self.folder.glob("*/"):
            shutil.rmtree(old, ignore_errors=True)
        run = Rendezvous(self.folder / uuid.uuid4().hex[:12])
        run.put(RUN, {})
        self.put(CALL, {**call, "id": run.folder.name})
        return run


class HeartbeatMonitor:
    """Whether something that should change all the time still does.

    Time in which nobody looks hardly counts: then this process was paused, or the file
    system, and the other one is none the worse for it.

    Args:
      clock: Seconds, ever growing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._value: Any = None
        self._looked = clock()
        self._silence = 0.0

    def is_lost(self, value: Any) -> bool:
        """Notes the present value; whether it has been that for too long."""
        now = self._clock()
        self._silence += min(now - self._looked, _LOOK_SECONDS)
        if value != self._value:
            self._value, self._silence = value, 0.0
        self._looked = now
        return self._silence > LOST_SECONDS


def fingerprints(spec: WorkerSpec) -> dict[str, str]:
    """What must be the same on all hosts, as this one sees it, each as a hash."""
    return {
        "code": fingerprint.fingerprint(spec.folder, spec.module),
        "training data": _hash(spec.train_files),
        "evaluation data": _hash(spec.eval_files),
        "transform graph": _hash(sorted(map(str, _files(spec.transform_graph)))),
        "schema": _hash([spec.schema_file]),
    }


def _files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def _hash(paths: Any) -> str:
    """Of names, sizes, beginnings and ends; without reading large files as a whole."""
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
    """The spec as of a host that has the folder `old` under the name `new`."""

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        inside = isinstance(value, str) and (value + "/").startswith(old + "/")
        return new + value[len(old) :] if inside else value

    return dataclasses.replace(spec, **{k: moved(v) for k, v in vars(spec).items()})
