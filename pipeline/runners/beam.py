"""The beam runner: TFX's BeamDagRunner, in one ordinary process of its own.

The orchestrator starts `beam_process` and waits; the nodes report through the same
event file as under the local runner, so the view, the table and the exit codes are the
same.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from typing import Any

from strategos.components import events, processes
from strategos.components.errors import InterruptedRunError, UserError
from strategos.components.files import temporary
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners import NodeFailedError, environment


class BeamRunner:
    """Runs a plan through BeamDagRunner."""

    def run(self, plan: Plan) -> None:
        """See `Runner.run`."""
        request = {
            "ir": base64.b64encode(plan.ir.SerializeToString()).decode(),
            "connection": base64.b64encode(
                plan.connection.SerializeToString()
            ).decode(),
            "events": str(plan.events),
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
            try:
                _tell(process, json.dumps(request).encode())
            except KeyboardInterrupt:
                raise _interruption(plan) from None
        if process.returncode:
            raise _failure(plan, process.returncode)


def _tell(process: subprocess.Popen, request: bytes) -> None:
    """Gives a process its input and waits for its end."""
    try:
        process.communicate(request)
    finally:
        processes.end_session(process)


def _failure(plan: Plan, code: int) -> NodeFailedError:
    """The failure of the node that was at work at the end; of none, if none was."""
    last = _last_of_a_node(plan)
    if last["event"] == "node_failed":
        return NodeFailedError.from_json(last)
    if last["event"] == "node_started":
        cause = f"the process ended in the middle of its work (exit code {code})"
        return NodeFailedError(last["node"], UserError(cause))
    ended = UserError(f"BeamDagRunner ended with exit code {code}")
    return NodeFailedError("(none)", ended)


def _interruption(plan: Plan) -> BaseException:
    """An interrupt as the failure of the node that was at work, if one was."""
    last = _last_of_a_node(plan)
    if last["event"] != "node_started":
        return KeyboardInterrupt()
    failure = NodeFailedError(last["node"], InterruptedRunError("interrupted"))
    seconds = time.time() - last["time"]
    events.emit("node_failed", **failure.to_json(), seconds=seconds)
    return failure


def _last_of_a_node(plan: Plan) -> dict[str, Any]:
    """The last that was reported of a node's start or end."""
    for line in reversed(plan.events.read_text().splitlines()):
        event = json.loads(line)
        if event["event"] in ("node_started", "node_failed", "node_finished"):
            return event
    return {"event": "none"}
