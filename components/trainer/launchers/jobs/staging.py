"""Copies a training's files to a place that the machines of a job can read.

A step of a pipeline has its inputs in its own container, and a run on this machine
whose root is in an object store works on local copies. The launcher copies the inputs
to a folder on a volume or in an object store, named by the training, so that a launcher
that is started again finds the copies, the checkpoints and the job of its predecessor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from strategos.components.files import (
    commit,
    object_stores,
    places,
    storage,
)
from strategos.components.files.filesystems import is_remote
from strategos.components.files.places import Place, RemotePath
from strategos.components.trainer import finished
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import archive

_CHECKPOINTS = "checkpoints"
_COMPLETE = ".complete"  # ends the name of the object that is written after a folder's


def in_image(spec: WorkerSpec, settings: Mapping[str, Any], key: str) -> WorkerSpec:
    """The training, with the user's modules at their path in an image or their URL.

    Args:
      spec: The training.
      settings: Settings of the job: the image has the folder `context` as `workload`.
        `modules`, if set, is the URL of a folder for the modules' archive, which is
        uploaded if it is missing; in a step, the archive exists already.
      key: The setting that `modules` is from, for messages.

    Raises:
      UserError: The modules cannot be uploaded.
    """
    modules = settings.get("modules")
    if modules:
        url = os.environ.get(archive.VARIABLE) or archive.upload(
            spec.folder, spec.module, modules, key, spec.files
        )
        return dataclasses.replace(spec, folder=url)
    context = settings["context"]
    if not context or not Path(spec.folder).is_relative_to(context):
        return spec
    folder = Path(settings["workload"]) / Path(spec.folder).relative_to(context)
    return dataclasses.replace(spec, folder=str(folder))


def trained(
    spec: WorkerSpec,
    settings: Mapping[str, Any],
    key: str,
    train: Callable[[WorkerSpec], dict[str, Any]],
) -> dict[str, Any]:
    """Trains on copies that machines elsewhere see, and removes them after it.

    Args:
      spec: See `staged`.
      settings: See `staged`.
      key: See `staged`.
      train: Trains as the `staged` spec says, and returns the facts.

    Returns:
      The facts of the training.

    Raises:
      UserError: As raised by `staged` and `train`.
    """
    moved = staged(spec, settings, key)
    facts = train(moved)
    if moved.checkpoint_dir != spec.checkpoint_dir:
        finished.mark(spec)
    remove(spec, settings)
    return facts


def staged(spec: WorkerSpec, settings: Mapping[str, Any], key: str) -> WorkerSpec:
    """The training, with inputs and checkpoints in a folder that all machines see.

    Args:
      spec: The training, with the paths of this machine.
      settings: Settings of the job. Without a `folder`, or in an object store,
        checkpoints stay where they are, as do inputs if checkpoints are on a volume.
      key: The section that `settings` are from, for messages.

    Raises:
      UserError: The object store of `folder` cannot be written.
    """
    place = _place(spec, settings)
    if place is None:
        return spec
    mounts = [volume["path"] for volume in settings.get("volumes", ())]
    copy: Any = _upload if isinstance(place, RemotePath) else _copy

    def at(path: str) -> str:
        if not path or is_remote(path) or is_below(path, mounts):
            return path
        return copy(path, place / "inputs")

    with _problems(place, f"{key}.folder" if settings.get("folder") else "run.root"):
        moved = spec.with_inputs(at)
    if is_remote(spec.checkpoint_dir):
        return moved
    return dataclasses.replace(moved, checkpoint_dir=str(place / _CHECKPOINTS))


def remove(spec: WorkerSpec, settings: Mapping[str, Any]) -> None:
    """Removes the copies and checkpoints of a training after its model was taken.

    Args:
      spec: See `staged`.
      settings: See `staged`.
    """
    place = _place(spec, settings)
    if place is not None:
        places.remove(place)


def _place(spec: WorkerSpec, settings: Mapping[str, Any]) -> Place | None:
    """The folder of the copies; None where machines see all that this one sees."""
    trainer, _, key = spec.checkpoint_dir.rstrip("/").rpartition("/")
    if is_remote(spec.checkpoint_dir):
        return places.at(os.path.dirname(trainer)) / "staged" / key
    folder = settings.get("folder")
    return places.at(folder) / key if folder else None


def is_below(path: str, folders: list[str]) -> bool:
    """Whether a path is one of the folders or in one."""
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _copy(path: str, folder: Path) -> str:
    """Copies a file or folder, unless the complete copy exists; returns its path."""
    target = folder / path.strip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if os.path.isdir(path) else shutil.copyfile
        with commit.aside(target, f".{target.name}.part") as aside:
            copy(path, aside)
    return str(target)


def _upload(path: str, folder: RemotePath) -> str:
    """Like `_copy`, to an object store; returns the URL."""
    target = folder / path.strip("/")
    if not os.path.isdir(path):
        if not target.exists():  # an object appears as a whole
            storage.put(path, str(target))
        return str(target)
    mark = folder / f"{path.strip('/')}{_COMPLETE}"
    if not mark.exists():
        storage.put(path, str(target))
        storage.write(str(mark), "")
    return str(target)


@contextlib.contextmanager
def _problems(place: Place, key: str) -> Iterator[None]:
    """Turns errors of an object store in the block into a message."""
    if not isinstance(place, RemotePath):
        yield
        return
    object_stores.check_writable(str(place), key=key)
    with object_stores.problems_of(str(place), key, "written"):
        yield
