"""The warm executor process, seen from the orchestrator."""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import errors, oom, processes
from strategos.components.files import temporary
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.runners import NodeFailedError, environment

if TYPE_CHECKING:
    from tfx.orchestration.portable import data_types
    from tfx.proto.orchestration import execution_result_pb2

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.plan.caching import Fingerprints
    from strategos.pipeline.plan.plan import Plan


class ExecutorClient:
    """Starts the executor process when it is first needed, and speaks to it.

    One JSON object a line each way over a socket pair; executions travel in the proto
    form of TFX's own `python_execution_binary`. The process is a session of its own, so
    that Ctrl-C reaches the orchestrator alone, and dies with it however it dies.
    """

    def __init__(self, log: Path, events: Path):
        """Names the files that executors write their output and events to."""
        self._log, self._events = log, events
        self._process: subprocess.Popen | None = None
        self._channel: Any = None
        self._temporary = contextlib.ExitStack()

    def __enter__(self) -> ExecutorClient:
        """Starts nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process, if it was started."""
        if self._process is None:
            return
        try:
            with contextlib.suppress(OSError):  # what a dead process did not take
                self._channel.close()
        finally:
            with self._temporary:
                processes.end_session(self._process)

    def compile(
        self,
        config: Config,
        fingerprints: Fingerprints,
        defaults: dict[str, Any],
        target: Path,
    ) -> None:
        """Compiles the pipeline of `config` to the file `target`.

        Raises:
          UserError: The config asks for what cannot be compiled.
        """
        arguments = base64.b64encode(pickle.dumps((config, fingerprints, defaults)))
        self._call(op="compile", arguments=arguments.decode(), target=str(target))

    def execute(
        self,
        executor_spec: Any,
        info: data_types.ExecutionInfo,
        environment: Mapping[str, str],
    ) -> execution_result_pb2.ExecutorOutput:
        """Runs an executor; a failure is in the output's `execution_result`."""
        from tfx.proto.orchestration import execution_result_pb2

        answer = self._call(
            op="execute",
            environment=dict(environment),
            node=info.pipeline_node.node_info.id,
            **tfx_adapter.execution_as_text(executor_spec, info),
        )
        output = base64.b64decode(answer["output"])
        return execution_result_pb2.ExecutorOutput.FromString(output)

    def launch(self, node: str, plan: Plan) -> None:
        """Runs a node of `plan` as a whole there: cache, executor and publishing.

        Raises:
          NodeFailedError: The node failed, and that has been reported.
          UserError: The process died over it.
        """
        answer = self._call(
            op="launch",
            environment=dict(plan.environment),
            node=node,
            ir=base64.b64encode(plan.ir.SerializeToString()).decode(),
            connection=base64.b64encode(plan.connection.SerializeToString()).decode(),
        )
        if "failure" in answer:
            raise NodeFailedError.from_json(answer["failure"])

    def _call(self, **request: Any) -> dict[str, Any]:
        if self._process is None:
            self._start()
        try:
            self._channel.write(json.dumps(request) + "\n")
            self._channel.flush()
            line = self._channel.readline()
        except OSError:
            line = ""
        if not line:
            raise errors.UserError(self._death())
        answer = json.loads(line)
        if "error" in answer:
            error = errors.from_json(answer["error"])
            more = f"{error.remedy} The log has more: {self._log}"
            raise error.but(remedy=more.strip())
        return answer

    def _start(self) -> None:
        self._kills = oom.OomKills()
        ours, theirs = socket.socketpair()
        # Before the process: an interrupt between the two must find both to be ended.
        self._channel = ours.makefile("rw", encoding="utf-8")
        ours.close()
        folder = self._temporary.enter_context(temporary.folder())
        with theirs, self._log.open("ab") as log:
            self._process = processes.start(
                "strategos.pipeline.runners.executor_process",
                [str(theirs.fileno()), str(self._events)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=environment.of_executors(TMPDIR=folder),
            )

    def _death(self) -> str:
        code = self._process.wait()
        if code != -signal.SIGKILL:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            return f"the executor process ended in the middle of its work ({how})"
        why = self._kills.explain("use less data or a machine with more memory")
        return f"the executor process was killed (SIGKILL). {why}"
