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


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Runs a pipeline.

    Args:
      request: The fields of a `RunRequest` as `run`, the caller's current folder as
        `folder`, and as `events` the path at which it reads the event file.

    Returns:
      As `pickled`, a pair in base64: the `RunResult` and "", or an error and its log.
    """
    os.chdir(request["folder"])

    def link(events: Path) -> contextlib.AbstractContextManager[None]:
        os.symlink(os.path.abspath(events), request["events"])
        return contextlib.nullcontext()

    content: Any
    try:
        ended = api.run_here(api.RunRequest(**request["run"]), link)
        content = api.conclude(*ended), ""
    except errors.UserError as error:
        content = errors.packed(error)
    return {"pickled": base64.b64encode(pickle.dumps(content)).decode()}


if __name__ == "__main__":
    worker_process.serve(work)
