"""A run in its own process, for callers that must not change: see `strategos.run`."""

from __future__ import annotations

import base64
import dataclasses
import functools
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from strategos.components import errors, worker_process
from strategos.components.files import temporary
from strategos.components.processes import Grace
from strategos.pipeline.config import MAIN_FILE

OPTIONS = ("from_node", "to_node", "from_scratch", "without_baseline", "take_over")


@dataclasses.dataclass(frozen=True)
class RunRequest:
    """The arguments of `strategos.run`, by name."""

    pipeline: str = MAIN_FILE
    overlays: Sequence[str] = ()
    sets: Sequence[str] = ()
    runner: str | None = None
    cache: bool = True
    from_node: str | None = None
    to_node: str | None = None
    from_scratch: bool = False
    without_baseline: bool = False
    take_over: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that are fields of `planning.RunOptions`."""
        return {name: getattr(self, name) for name in OPTIONS}


def run(request: RunRequest, follow: Callable[[str, Any], int]) -> Any:
    """Runs a pipeline in its own process, and waits for its end.

    Args:
      request: The arguments of the run.
      follow: Called with the path of the event file, which may not exist yet, and with
        the process; returns its exit code. An exception ends the run first.

    Returns:
      The `RunResult` of `strategos.pipeline.api`.

    Raises:
      BadInputError: The run was rejected before its first node.
      UserError: The run could not start.
    """
    with temporary.folder() as folder:
        events = os.path.join(folder, "events.jsonl")
        answer = worker_process.run(
            "strategos.pipeline.run_process",
            dict(run=dataclasses.asdict(request), events=events, folder=os.getcwd()),
            name="run",
            grace=Grace.RUN,
            wait=functools.partial(follow, events),
        )
    content, log = pickle.loads(base64.b64decode(answer["pickled"]))
    if answer["failed"]:
        raise errors.unpacked(content, log)
    return content
