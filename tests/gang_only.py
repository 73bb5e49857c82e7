"""Trains as `trainer.run.worker` does, and leaves out the export, half of a small run.

`python -m gang_only`, for tests of what comes before it: the weights are where a whole
training puts them. No process rehearses the export beside the gang. With `EXPORT=1` in
the environment, only the rehearsal is left out; with `EXPORT=measured`, the SavedModel,
too: the exporting process builds the model from the weights, compares and measures it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from strategos.components.exported import WEIGHTS_DIR
from strategos.components.trainer.run import rehearsal, session, verification, worker
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import serve


def _keep_weights(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, *_: Any
) -> dict[str, Any]:
    shutil.copytree(weights, f"{spec.model_dir}/{WEIGHTS_DIR}")
    return facts


def _export_nothing(*arguments: Any) -> None:
    """Makes the folder of the SavedModel, the last argument."""
    os.makedirs(arguments[-1])


@contextlib.contextmanager
def _no_answers(*_: Any) -> Iterator[futures.Future[None]]:
    """As where nothing is known that a SavedModel could answer."""
    answers: futures.Future[None] = futures.Future()
    answers.set_result(None)
    yield answers


if __name__ == "__main__":
    export = os.environ.get("EXPORT")
    if export is None:
        worker._export = _keep_weights
    if export == "measured":
        session._export = _export_nothing
        verification.saved_answers = _no_answers
    rehearsal.rehearsed = lambda *_: contextlib.nullcontext(lambda: None)
    serve(worker.work)
