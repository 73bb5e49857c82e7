"""The beam runner: runs TFX's BeamDagRunner in a separate process.

The orchestrator starts `beam_process` and waits. Nodes report through the same event
file as under the local runner, so the view, the table and the exit codes are the same.
"""

from __future__ import annotations

import base64
import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

from strategos.components import events, processes
from strategos.components.errors import InterruptedRunError, UserError
from strategos.components.files import temporary
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners import NodeFailedError, environment
from strategos.pipeline.runners.memory_watch import MemoryWatch


class BeamRunner:
    """Runs a plan through BeamDagRunner.

    Args:
      memory: Bytes that all processes of the run may take; no limit by default.
      state: The root's state folder, for `MemoryWatch`.
    """

    def __init__(self, memory: float = math.inf, state: Path | None = None):
        self._memory, self._state = memory, state

    def run(self, plan: Plan) -> None:
        """See `Runner.run`.

        Raises:
          NodeFailedError: A node failed; later nodes did not run.
        """
        request = {
            "ir": base64.b64encode(plan.ir.SerializeToString()).decode(),
            "connection": base64.b64encode(
                plan.connection.SerializeToString()
            ).decode(),
            "events": str(plan.events),
            "wait": plan.metadata_wait,
        }
        with temporary.folder() as folder, plan.log.open("ab") as log:
            process = processes.start(
                "strategos.pipeline.runners.beam_process",
                [],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment.of_executors(**plan.environment, TMPDIR=folder),
            )
            watch = MemoryWatch(process, self._memory, self._state)
            try:
                _communicate(process, json.dumps(request).encode(), watch)
            except KeyboardInterrupt:
                raise _interruption(plan) from None
        if process.returncode:
            raise _failure(plan, process.returncode, watch.error)


def _communicate(process: subprocess.Popen, request: bytes, watch: MemoryWatch) -> None:
    """Writes the input of a process and waits for its end."""
    try:
        process.communicate(request)
    finally:
        watch.stop()
        processes.end_session(process)


def _failure(plan: Plan, code: int, cause: UserError | None = None) -> NodeFailedError:
    """The failure of the node that was running at the end; of no node, if none was."""
    last = _last_node_event(plan)
    if last["event"] == "node_failed":
        return NodeFailedError.from_json(last)
    if last["event"] == "node_started":
        ended = UserError(f"the process ended unexpectedly (exit code {code})")
        return NodeFailedError(last["node"], cause or ended)
    ended = UserError(f"BeamDagRunner ended with exit code {code}")
    return NodeFailedError("(none)", cause or ended)


def _interruption(plan: Plan) -> BaseException:
    """Converts an interrupt to the failure of the running node, if there is one."""
    last = _last_node_event(plan)
    if last["event"] != "node_started":
        return KeyboardInterrupt()
    failure = NodeFailedError(last["node"], InterruptedRunError("interrupted"))
    seconds = time.time() - last["time"]
    events.emit("node_failed", **failure.to_json(), seconds=seconds)
    return failure


def _last_node_event(plan: Plan) -> dict[str, Any]:
    """The last event that reports the start or the end of a node."""
    for line in reversed(plan.events.read_text().splitlines()):
        event = json.loads(line)
        if event["event"] in ("node_started", "node_failed", "node_finished"):
            return event
    return {"event": "none"}
