"""A finished model, from its export until it is registered in ML Metadata.

The worker moves the model to its folder and then writes a mark to the folder of the
checkpoints. The orchestrator removes that folder once the model is registered in ML
Metadata. If the orchestrator dies before, or ML Metadata does not answer, the next run
with the same data, settings and code finds the mark and reuses the model instead of
training again. If the export fails, the trained weights are kept there: the next run
only exports.

In an object store, model and logs are copies of local ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

from strategos.components.exported import FACTS, SERVING_DIR, WEIGHTS_DIR
from strategos.components.files import filesystems, listing, storage
from strategos.components.trainer.spec import WorkerSpec

ASIDE = ".tmp-export"
MARK = "finished.json"
TRAINED = "trained"

_PARTS = (FACTS, WEIGHTS_DIR, SERVING_DIR)  # in this order: the SavedModel is last


def with_local_outputs(spec: WorkerSpec, folder: str) -> WorkerSpec:
    """The training with a model and logs on this machine, where TensorFlow writes.

    Args:
      spec: The training.
      folder: A local folder, for outputs that belong in an object store.
    """
    if not filesystems.is_remote(spec.model_dir):
        return spec
    return dataclasses.replace(
        spec, model_dir=f"{folder}/model", log_dir=f"{folder}/logs"
    )


def publish(spec: WorkerSpec, weights: str, facts: dict[str, Any]) -> None:
    """Completes a model that was exported aside, moves it to its folder and marks it.

    Args:
      spec: The training.
      weights: Local folder of the weights, and of the outputs if they are local.
      facts: The facts of the training, written to `trainer.json`.

    Raises:
      OSError: The object store does not answer, or rejects the request.
    """
    local = with_local_outputs(spec, weights)
    aside = f"{local.model_dir}/{ASIDE}"
    os.makedirs(f"{aside}/{WEIGHTS_DIR}", exist_ok=True)
    for file in Path(weights).glob("weights.*"):
        shutil.copyfile(file, f"{aside}/{WEIGHTS_DIR}/{file.name}")
    _write(f"{aside}/{FACTS}", facts)
    _move(local)
    if local != spec:
        if os.path.isdir(local.log_dir):
            storage.put(local.log_dir, spec.log_dir)
        storage.put(local.model_dir, spec.model_dir)
    mark(spec)


def take(spec: WorkerSpec, *, new: bool = False) -> dict[str, Any] | None:
    """Copies a finished model that no run has published to `spec.model_dir`.

    Args:
      spec: The training that may have a finished model.
      new: Whether a job of `spec` has just trained it. Its machines may have had the
        weights to start from under another path, so settings are not compared.

    Returns:
      The facts of its training; None if no such model exists.

    Raises:
      OSError: The object store does not answer, or rejects the request.
    """
    copied = filesystems.is_remote(spec.checkpoint_dir)
    marked = _read(f"{spec.checkpoint_dir}/{MARK}")
    if marked is None or not (new or marked["how"] == _how(spec)):
        return None
    model = os.path.join(_trainer_folder(spec), marked["model"])
    # Object stores keep no empty folder, e.g. the folder of weights after `run_fn`.
    parts = (FACTS, SERVING_DIR) if copied else _PARTS
    if not all(listing.exists(f"{model}/{part}", patient=True) for part in parts):
        return None  # the interrupted run removed its outputs
    _copy(model, f"{spec.model_dir}/{ASIDE}")
    os.makedirs(f"{spec.model_dir}/{ASIDE}/{WEIGHTS_DIR}", exist_ok=True)
    _copy(os.path.join(_trainer_folder(spec), marked["logs"]), spec.log_dir)
    _move(spec)
    if not copied:  # else the mark goes on to name the model in the store
        mark(spec)
    storage.remove(f"{spec.model_dir}/{ASIDE}")
    return _read(f"{spec.model_dir}/{FACTS}")


def mark(spec: WorkerSpec) -> None:
    """Marks the model in `spec.model_dir` as complete.

    Args:
      spec: Its training.
    """
    base = f"{_trainer_folder(spec)}/"  # other hosts may mount it under another path
    content = {
        "model": spec.model_dir.removeprefix(base),
        "logs": spec.log_dir.removeprefix(base),
        "how": _how(spec),
    }
    _write(f"{spec.checkpoint_dir}/{MARK}", content)


def keep_weights(spec: WorkerSpec, weights: str, facts: dict[str, Any]) -> str:
    """Keeps the weights of a training after its export has failed.

    Args:
      spec: The training.
      weights: Local folder of the weights.
      facts: The facts of the training.

    Returns:
      The folder that gets them, a value for `trainer.warm_start`.

    Raises:
      OSError: They cannot be written.
    """
    kept = f"{spec.checkpoint_dir}/{TRAINED}"
    for file in filter(Path.is_file, Path(weights).iterdir()):
        _copy(str(file), f"{kept}/{WEIGHTS_DIR}/{file.name}")
    _write(f"{kept}/{FACTS}", {"facts": facts, "how": _how(spec)})
    return kept


def take_weights(spec: WorkerSpec, weights: str) -> dict[str, Any] | None:
    """Reads the weights and facts that `keep_weights` kept of an equal training.

    Args:
      spec: The training.
      weights: Local folder that gets the weights.

    Returns:
      The facts of the training; None if no weights were kept.
    """
    kept = f"{spec.checkpoint_dir}/{TRAINED}"
    facts = _read(f"{kept}/{FACTS}")
    if facts is None or facts["how"] != _how(spec):
        return None
    _copy(f"{kept}/{WEIGHTS_DIR}", weights)
    return facts["facts"]


def forget(model_dir: str) -> None:
    """Removes mark and checkpoints of a model that is registered in ML Metadata.

    Args:
      model_dir: The local folder of the Model artifact.
    """
    trainer = Path(model_dir).parent.parent
    for mark in trainer.glob(f"checkpoints/*/{MARK}"):
        if trainer / json.loads(mark.read_text())["model"] == Path(model_dir):
            storage.remove(str(mark.parent))


def unpublished(trainer: Path) -> list[Path]:
    """The folders that later runs need to take finished models or to resume.

    Args:
      trainer: The local folder of a Trainer's outputs.

    Returns:
      Checkpoints, and models and logs that are not registered in ML Metadata.
    """
    paths = list(trainer.glob("checkpoints/*"))
    for mark in trainer.glob(f"checkpoints/*/{MARK}"):
        named = json.loads(mark.read_text())
        paths += [trainer / named["model"], trainer / named["logs"]]
    return paths


def clear(model_dir: str) -> None:
    """Removes the parts of a model that a killed export has left in `model_dir`."""
    for name in (ASIDE, *_PARTS):
        storage.remove(f"{model_dir}/{name}")


def _move(spec: WorkerSpec) -> None:
    """Moves the exported model to its folder."""
    for name in _PARTS:
        os.replace(f"{spec.model_dir}/{ASIDE}/{name}", f"{spec.model_dir}/{name}")


def _how(spec: WorkerSpec) -> dict[str, Any]:
    """Settings that a checkpoint may differ in, and a finished model may not."""
    return {"distribution": dict(spec.distribution), "warm_start": spec.warm_start}


def _trainer_folder(spec: WorkerSpec) -> str:
    return os.path.dirname(os.path.dirname(spec.checkpoint_dir))


def _copy(source: str, target: str) -> None:
    """Copies a file or folder, if it exists, to another place or to this machine."""
    with contextlib.suppress(FileNotFoundError):  # a training without logs
        if filesystems.is_remote(source):
            storage.get(source, target)
        elif filesystems.is_remote(target):
            storage.put(source, target)
        elif os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)


def _write(path: str, content: dict[str, Any]) -> None:
    storage.write(path, json.dumps(content, indent=1, sort_keys=True))


def _read(path: str) -> dict[str, Any] | None:
    """The content of a JSON file; None if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return json.loads(storage.read(path, patient=True))
    return None
