"""A finished model, from its export until it is registered in ML Metadata.

The worker moves the model to its folder and then writes a mark to the folder of the
checkpoints. The orchestrator removes that folder once the model is registered in ML
Metadata. If the orchestrator dies before, or ML Metadata does not answer, the next run
with the same data, settings and code finds the mark and reuses the model instead of
training again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from strategos.components.exported import FACTS, SERVING_DIR, WEIGHTS_DIR
from strategos.components.files import filesystems
from strategos.components.trainer.spec import WorkerSpec

ASIDE = ".tmp-export"
MARK = "finished.json"

_PARTS = (FACTS, WEIGHTS_DIR, SERVING_DIR)  # in this order: the SavedModel is last


def publish(spec: WorkerSpec, weights: str, facts: dict[str, Any]) -> None:
    """Completes a model that was exported aside, moves it to its folder and marks it.

    Args:
      spec: The training.
      weights: Local folder of the weights.
      facts: The facts of the training, written to `trainer.json`.
    """
    from tensorflow.io import gfile

    aside = f"{spec.model_dir}/{ASIDE}"
    gfile.makedirs(f"{aside}/{WEIGHTS_DIR}")
    for file in Path(weights).glob("weights.*"):
        gfile.copy(str(file), f"{aside}/{WEIGHTS_DIR}/{file.name}")
    _write(f"{aside}/{FACTS}", facts)
    _move(spec)


def take(spec: WorkerSpec) -> dict[str, Any] | None:
    """Copies a finished model that no run has published to `spec.model_dir`.

    Args:
      spec: The training whose finished model is looked for.

    Returns:
      The facts of its training; None if no such model exists.
    """
    from tensorflow.io import gfile

    filesystems.register(spec.checkpoint_dir)
    mark = _read(f"{spec.checkpoint_dir}/{MARK}")
    if mark is None or mark["how"] != _how(spec):
        return None
    model = os.path.join(_trainer_folder(spec), mark["model"])
    if not all(gfile.exists(f"{model}/{part}") for part in _PARTS):
        return None  # the interrupted run removed its outputs
    _copy(model, f"{spec.model_dir}/{ASIDE}")
    _copy(os.path.join(_trainer_folder(spec), mark["logs"]), spec.log_dir)
    _move(spec)
    remove(f"{spec.model_dir}/{ASIDE}")
    return _read(f"{spec.model_dir}/{FACTS}")


def forget(model_dir: str) -> None:
    """Removes mark and checkpoints of a model that is registered in ML Metadata.

    Needs TFX, and TensorFlow only for remote folders.

    Args:
      model_dir: The folder of the Model artifact.
    """
    from tfx.dsl.io import fileio

    trainer = os.path.dirname(os.path.dirname(model_dir.rstrip("/")))
    for path in fileio.glob(f"{trainer}/checkpoints/*/{MARK}"):
        with fileio.open(path) as file:
            marked = json.loads(file.read())["model"]
        if os.path.join(trainer, marked) == model_dir.rstrip("/"):
            fileio.rmtree(os.path.dirname(path))


def unpublished(trainer: Path) -> list[Path]:
    """The folders that later runs need to take finished models or to resume.

    Args:
      trainer: The local folder of a Trainer's outputs.

    Returns:
      Checkpoints, and models and logs that are not registered in ML Metadata.
    """
    found = list(trainer.glob("checkpoints/*"))
    for mark in trainer.glob(f"checkpoints/*/{MARK}"):
        named = json.loads(mark.read_text())
        found += [trainer / named["model"], trainer / named["logs"]]
    return found


def remove(path: str) -> None:
    """Removes the file or folder `path` if it exists."""
    from tensorflow.io import gfile

    if gfile.exists(path):
        (gfile.rmtree if gfile.isdir(path) else gfile.remove)(path)


def clear(model_dir: str) -> None:
    """Removes the parts of a model that a killed export has left in `model_dir`."""
    for name in (ASIDE, *_PARTS):
        remove(f"{model_dir}/{name}")


def _move(spec: WorkerSpec) -> None:
    """Moves the exported model to its folder, then marks it as complete."""
    from tensorflow.io import gfile

    for name in _PARTS:
        source = f"{spec.model_dir}/{ASIDE}/{name}"
        gfile.rename(source, f"{spec.model_dir}/{name}", overwrite=True)
    base = f"{_trainer_folder(spec)}/"  # other hosts may mount it under another path
    gfile.makedirs(spec.checkpoint_dir)
    mark = {
        "model": spec.model_dir.removeprefix(base),
        "logs": spec.log_dir.removeprefix(base),
        "how": _how(spec),
    }
    _write(f"{spec.checkpoint_dir}/{MARK}", mark)


def _how(spec: WorkerSpec) -> dict[str, Any]:
    """Settings that a checkpoint may differ in, and a finished model may not."""
    return {"distribution": dict(spec.distribution), "warm_start": spec.warm_start}


def _trainer_folder(spec: WorkerSpec) -> str:
    return os.path.dirname(os.path.dirname(spec.checkpoint_dir))


def _copy(source: str, target: str) -> None:
    from tensorflow.io import gfile

    for folder, _, files in gfile.walk(source):
        there = f"{target}/{folder[len(source) :].strip('/')}".rstrip("/")
        gfile.makedirs(there)
        for file in files:
            gfile.copy(os.path.join(folder, file), f"{there}/{file}", overwrite=True)


def _write(path: str, content: dict[str, Any]) -> None:
    """Writes a JSON file atomically."""
    from tensorflow.io import gfile

    with gfile.GFile(f"{path}.tmp", "w") as file:
        file.write(json.dumps(content, indent=1, sort_keys=True))
    gfile.rename(f"{path}.tmp", path, overwrite=True)


def _read(path: str) -> dict[str, Any] | None:
    """The content of a JSON file; None if it does not exist."""
    from tensorflow.io import gfile

    if not gfile.exists(path):
        return None
    with gfile.GFile(path) as file:
        return json.loads(file.read())
