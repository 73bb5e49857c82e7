"""A training worker: trains in a process of its own, then exports from the weights.

`python -m strategos.components.trainer.worker`, started by a launcher. This process
imports TensorFlow, runs nothing, and forks the one that trains. When that has written
its weights and ended, this one, still fresh, builds the model anew, reads them,
evaluates and exports: the SavedModel holds nothing of the training strategy.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from strategos.components import events, filesystems
from strategos.components.trainer.autograph import convert_user_code_only
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import answer, answer_of, serve, watch_parent

SERVING_DIR = "Format-Serving"  # as in TFX's path_utils
WEIGHTS_DIR = "Format-Weights"


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Trains and exports as `request`, a `WorkerSpec`, says; returns the facts of it.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
    """
    spec = WorkerSpec.from_json(request)
    events.emit("progress", message="importing TensorFlow")
    from strategos.components.trainer import session

    filesystems.register(spec.model_dir)
    convert_user_code_only()
    aside = f"{spec.model_dir}/.tmp-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="weights-") as folder, _removed(aside):
        weights = str(Path(folder, "weights"))
        facts = _forked(lambda: session.train(spec, weights), Path(folder))
        events.emit("progress", message="evaluating and exporting")
        facts["evaluation"] = session.evaluate_and_export(
            spec, facts, weights, f"{aside}/{SERVING_DIR}"
        )
        _publish(spec.model_dir, aside, folder, facts)
    return facts


@contextlib.contextmanager
def _removed(folder: str) -> Iterator[None]:
    """Removes `folder` in the end, if there is one."""
    from tensorflow.io import gfile

    try:
        yield
    finally:
        if gfile.exists(folder):
            gfile.rmtree(folder)


def _publish(model_dir: str, aside: str, weights: str, facts: dict[str, Any]) -> None:
    """Moves what was written aside to its place, the SavedModel last."""
    from tensorflow.io import gfile

    gfile.makedirs(f"{aside}/{WEIGHTS_DIR}")
    for file in Path(weights).glob("weights.*"):
        gfile.copy(str(file), f"{aside}/{WEIGHTS_DIR}/{file.name}")
    with gfile.GFile(f"{aside}/trainer.json", "w") as file:
        file.write(json.dumps(facts, indent=1, sort_keys=True))
    for name in ("trainer.json", WEIGHTS_DIR, SERVING_DIR):
        gfile.rename(f"{aside}/{name}", f"{model_dir}/{name}", overwrite=True)


def _forked(task: Callable[[], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What `task` returns or raises in a fork of this process."""
    path = folder / "trained.json"
    with warnings.catch_warnings():  # the other thread only waits for our parent's end
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        watch_parent()
        answer(path, task)
    _, status = os.waitpid(child, 0)
    return answer_of(path, os.waitstatus_to_exitcode(status), "trainer")


if __name__ == "__main__":
    serve(work)
