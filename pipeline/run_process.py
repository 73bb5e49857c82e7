"""The process of `strategos.run`: one run; the caller reads its event file."""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
from pathlib import Path
from typing import Any

from strategos.components import errors, worker_process
from strategos.pipeline import api
from strategos.pipeline.runners.apart import RunRequest


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a pipeline.

    Args:
      request: The fields of a `RunRequest` as `run`, the caller's current folder as
        `folder`, and as `events` the path at which it reads the event file.

    Returns:
      As `pickled`, a pair in base64: the `RunResult` and "", or an error and its log;
      `failed`: whether it is an error.
    """
    os.chdir(request["folder"])

    def link(events: Path) -> contextlib.AbstractContextManager[None]:
        os.symlink(os.path.abspath(events), request["events"])
        return contextlib.nullcontext()

    content: Any
    failed = False
    try:
        ended = api.run_here(RunRequest(**request["run"]), link)
        content = api.conclude(*ended), ""
    except errors.UserError as error:
        content, failed = errors.packed(error), True
    pickled = base64.b64encode(pickle.dumps(content)).decode()
    return {"pickled": pickled, "failed": failed}


if __name__ == "__main__":
    worker_process.serve(work)
