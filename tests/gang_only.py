"""Trains as `trainer.run.worker` does, and leaves out the export, half of a small run.

`python -m gang_only`, for tests of what comes before it: the weights are where a whole
training puts them. No process rehearses the export beside the gang. With `EXPORT` in
the environment, only the rehearsal is left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from strategos.components.exported import WEIGHTS_DIR
from strategos.components.trainer.run import rehearsal, worker
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.worker_process import serve


def _keep_weights(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, *_: Any
) -> dict[str, Any]:
    shutil.copytree(weights, f"{spec.model_dir}/{WEIGHTS_DIR}")
    return facts


if __name__ == "__main__":
    if "EXPORT" not in os.environ:
        worker._export = _keep_weights
    rehearsal.rehearsed = lambda *_: contextlib.nullcontext(lambda: None)
    serve(worker.work)
