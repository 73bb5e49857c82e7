"""Copies of a training's files on a volume, where the pods of a TFJob see them.

A step of Kubeflow Pipelines has its inputs in its own container. Its launcher copies
them to a folder on a volume, named by the training, so that a step that is started
again finds the copies, the checkpoints and the TFJob of its predecessor.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strategos.components.files.filesystems import is_remote
from strategos.components.trainer.spec import WorkerSpec

_CHECKPOINTS = "checkpoints"


def staged(spec: WorkerSpec, settings: Mapping[str, Any]) -> WorkerSpec:
    """The training, with inputs and checkpoints in a folder that all pods see.

    Args:
      spec: The training, with the paths of this machine.
      settings: `trainer.distribution.tfjob`. Without a `folder`, all paths are kept.
    """
    if not settings["folder"]:
        return spec
    place = Path(settings["folder"], os.path.basename(spec.checkpoint_dir.rstrip("/")))
    mounts = [volume["path"] for volume in settings["volumes"]]

    def at(path: str) -> str:
        if not path or is_remote(path) or is_below(path, mounts):
            return path
        return _copy(path, place / "inputs")

    return dataclasses.replace(
        spec,
        train_files=tuple(map(at, spec.train_files)),
        eval_files=tuple(map(at, spec.eval_files)),
        transform_graph=at(spec.transform_graph),
        schema_file=at(spec.schema_file),
        warm_start=at(spec.warm_start),
        checkpoint_dir=str(place / _CHECKPOINTS),
    )


def remove(staged_spec: WorkerSpec, settings: Mapping[str, Any]) -> None:
    """Removes the copies and the checkpoints of a training whose model was taken.

    Args:
      staged_spec: What `staged` returned.
      settings: As given to `staged`.
    """
    if settings["folder"]:
        folder = Path(staged_spec.checkpoint_dir).parent
        shutil.rmtree(folder, ignore_errors=True)


def is_below(path: str, folders: list[str]) -> bool:
    """Whether a path is one of the folders or in one."""
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _copy(path: str, folder: Path) -> str:
    """Copies a file or folder, unless the complete copy exists; returns its path."""
    target = folder / path.strip("/")
    if not target.exists():
        aside = target.with_name(f".{target.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if os.path.isdir(path) else shutil.copyfile
        copy(path, aside)
        aside.rename(target)
    return str(target)
