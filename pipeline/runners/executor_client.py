"""The orchestrator's client of the warm executor process."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import pickle
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import errors, fork_server, processes
from strategos.components.container import warm_start
from strategos.components.files import temporary
from strategos.components.limits import oom
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.runners import environment, executor_server
from strategos.pipeline.runners.memory_watch import MemoryWatch

if TYPE_CHECKING:
    from tfx.orchestration.portable import data_types
    from tfx.proto.orchestration import execution_result_pb2

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.plan.caching import Fingerprints


class ExecutorClient:
    """Starts the executor process, by default at the first request, and sends requests.

    Requests and answers are one JSON object per line over a socket pair; executions are
    serialized as for TFX's `python_execution_binary`. The process has its own session,
    so that Ctrl-C reaches only the orchestrator; it ends when the orchestrator ends.
    """

    def __init__(
        self,
        log: Path,
        events: Path,
        memory: float = math.inf,
        state: Path | None = None,
    ):
        """Starts no process yet.

        Args:
          log: The file for the output of executors.
          events: The run's event file.
          memory: Bytes that all processes of the run may take; no limit by default.
          state: The root's state folder, for `MemoryWatch`.
        """
        self._log, self._events = log, events
        self._memory, self._state = memory, state
        self._process: subprocess.Popen[bytes] | fork_server.Child | None = None
        self._watch: MemoryWatch | None = None
        self._channel: Any = None
        self._temporary = contextlib.ExitStack()

    def __enter__(self) -> ExecutorClient:
        """Starts no process yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process, if it was started."""
        self.end()

    @property
    def is_started(self) -> bool:
        """Whether the process was started."""
        return self._process is not None

    def end(self) -> None:
        """Ends the process, if it was started; a training saves a checkpoint first."""
        if self._process is None:
            return
        try:
            with contextlib.suppress(OSError):  # unsent requests to a dead process
                self._channel.close()
        finally:
            with self._temporary:
                if self._watch is not None:
                    self._watch.stop()
                processes.end_session(self._process)

    def start(self, *, trains_only: bool = False) -> None:
        """Starts the process, which imports TensorFlow before its first request.

        Args:
          trains_only: Whether the first node to execute is likely the Trainer, so that
            imports of earlier nodes need not delay it.
        """
        imports = warm_start.TRAINING if trains_only else warm_start.IMPORTS
        self._kills = oom.OomKills()
        ours, theirs = socket.socketpair()
        # Before the process, so that `__exit__` can close it after an interrupt here.
        self._channel = ours.makefile("rw", encoding="utf-8")
        ours.close()
        folder = self._temporary.enter_context(temporary.folder())
        with theirs, self._log.open("ab") as log:
            env = environment.of_executors(TMPDIR=folder)
            self._process = executor_server.start(
                *(theirs, self._events, log, env, imports)
            )
        self._watch = MemoryWatch(self._process, self._memory, self._state)

    def compile(
        self,
        config: Config,
        fingerprints: Fingerprints,
        defaults: dict[str, Any],
        target: Path,
    ) -> None:
        """Compiles the pipeline of `config` to a file. See `compiled.Compiler`.

        Raises:
          UserError: The pipeline cannot be compiled, or the process died.
        """
        arguments = base64.b64encode(pickle.dumps((config, fingerprints, defaults)))
        self._call(op="compile", arguments=arguments.decode(), target=str(target))

    def execute(
        self,
        executor_spec: Any,
        info: data_types.ExecutionInfo,
        environment: Mapping[str, str],
    ) -> execution_result_pb2.ExecutorOutput:
        """Runs an executor.

        Args:
          executor_spec: The node's executor spec.
          info: The execution.
          environment: Variables to set in the process.

        Returns:
          The executor's output; a failure is in its `execution_result`.

        Raises:
          UserError: The process died.
        """
        from tfx.proto.orchestration import execution_result_pb2

        answer = self._call(
            op="execute",
            environment=dict(environment),
            node=info.pipeline_node.node_info.id,
            **tfx_adapter.execution_as_text(executor_spec, info),
        )
        output = base64.b64decode(answer["output"])
        return execution_result_pb2.ExecutorOutput.FromString(output)

    def _call(self, **request: Any) -> dict[str, Any]:
        if self._process is None:
            self.start()
        try:
            self._channel.write(json.dumps(request) + "\n")
            self._channel.flush()
            line = self._channel.readline()
        except OSError:
            line = ""
        if not line:
            raise self._death()
        answer = json.loads(line)
        if "error" in answer:
            error = errors.from_json(answer["error"])
            more = f"{error.remedy} The log has more: {self._log}"
            raise error.but(remedy=more.strip())
        return answer

    def _death(self) -> errors.UserError:
        assert self._process is not None and self._watch is not None
        self._watch.stop()
        code = self._process.wait()
        if self._watch.error is not None:
            return self._watch.error
        if code != -signal.SIGKILL:
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            return errors.UserError(f"the executor process ended unexpectedly ({how})")
        why = self._kills.explain("use less data or a machine with more memory")
        return errors.UserError(f"the executor process was killed (SIGKILL). {why}")
