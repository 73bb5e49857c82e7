"""The beam runner: TFX's BeamDagRunner, in one ordinary process of its own.

The orchestrator starts `beam_process` and waits; the nodes report through the same
event file as under the local runner, so the view, the table and the exit codes are the
same.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys

from strategos.pipeline import quiet
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
            process.stdin.write(json.dumps(request).encode())
            process.stdin.close()
            code = process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if code:
            raise _failure(plan, code)


def _failure(plan: Plan, code: int) -> NodeFailedError:
    for line in reversed(plan.events.read_text().splitlines()):
        event = json.loads(line)
        if event["event"] == "node_failed":
            return NodeFailedError(event["node"], event["cause"], event["exit_code"])
        if event["event"] == "node_started":
            cause = f"the process ended in the middle of its work (exit code {code})"
            return NodeFailedError(event["node"], cause)
    return NodeFailedError("(none)", f"BeamDagRunner ended with exit code {code}")
