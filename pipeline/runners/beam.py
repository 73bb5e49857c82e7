"""The beam runner: TFX's BeamDagRunner, in one ordinary process of its own.

The orchestrator starts `beam_process` and waits; the nodes report through the same
event file as under the local runner, so the view, the table and the exit codes are the
same.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

from strategos.pipeline import children, quiet
from strategos.pipeline.runners import NodeFailedError, Plan


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
        with plan.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "strategos.pipeline.runners.beam_process",
                    str(os.getpid()),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **quiet.environment(), **plan.environment},
                start_new_session=True,
            )
        try:
            process.communicate(json.dumps(request).encode())
        finally:
            children.end(process)
        if process.returncode:
            raise _failure(plan, process.returncode)


def _failure(plan: Plan, code: int) -> NodeFailedError:
    """The failure of the node that was at work at the end; of none, if none was."""
    for line in reversed(plan.events.read_text().splitlines()):
        event = json.loads(line)
        if event["event"] == "node_failed":
            return NodeFailedError(event["node"], event["cause"], event["exit_code"])
        if event["event"] == "node_started":
            cause = f"the process ended in the middle of its work (exit code {code})"
            return NodeFailedError(event["node"], cause)
        if event["event"] == "node_finished":
            break
    return NodeFailedError("(none)", f"BeamDagRunner ended with exit code {code}")
