"""TFX's BeamDagRunner with nodes that work in the main thread.

Beam calls the DoFn of a node in a thread of its own, which hears of no signal. In the
main thread SIGTERM finds an executor as it does under the local runner: a training
saves a checkpoint before the process ends.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

from tfx.orchestration.beam import beam_dag_runner
from tfx.proto.orchestration import pipeline_pb2

from strategos.pipeline.runners.launching import launch

_calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()


def run(ir: pipeline_pb2.Pipeline) -> None:
    """Runs `ir`, its nodes in this, the main thread. What that raises is raised."""
    outcome: futures.Future[None] = futures.Future()

    def work() -> None:
        _settle(outcome, Runner().run_with_ir, ir)
        _calls.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (call := _calls.get()) is not None:
        call()
    outcome.result()


class NodeDoFn(beam_dag_runner.PipelineNodeAsDoFn):
    """Launches a node with the events and errors that all our runners share."""

    def _run_node(self) -> None:
        _in_main_thread(
            launch,
            self._pipeline_node,
            self._pipeline,
            self._deployment_config,
            self._mlmd_connection_config,
        )


class Runner(beam_dag_runner.BeamDagRunner):
    """BeamDagRunner with our DoFn, by the attribute that it has for that."""

    _PIPELINE_NODE_DO_FN_CLS = NodeDoFn


def _in_main_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function` returns or raises when `run` calls it."""
    answer: futures.Future[Any] = futures.Future()
    _calls.put(lambda: _settle(answer, function, *arguments))
    return answer.result()


def _settle(future: futures.Future, function: Callable[..., Any], *arguments: Any):
    try:
        future.set_result(function(*arguments))
    except BaseException as error:  # whoever waits must not do so for ever
        future.set_exception(error)
