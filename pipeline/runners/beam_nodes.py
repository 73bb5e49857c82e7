"""TFX's BeamDagRunner with nodes that run in the main thread.

Beam calls the DoFn of a node in a thread of Beam's, where Python delivers no signals.
In the main thread an executor receives SIGTERM as under the local runner: a training
saves a checkpoint before the process ends.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

from tfx.orchestration.beam import beam_dag_runner
from tfx.proto.orchestration import pipeline_pb2

from strategos.pipeline.runners.launching import launch
from strategos.pipeline.runners.remote_root.artifacts import Copies

_calls: queue.SimpleQueue[Callable[..., None] | None] = queue.SimpleQueue()


def run(ir: pipeline_pb2.Pipeline, wait: float, made: Copies | None) -> None:
    """Runs a pipeline, with its nodes in the calling thread: the main thread.

    Args:
      ir: The compiled pipeline, with its connection to ML Metadata.
      wait: Seconds to wait for a server of ML Metadata that does not answer.
      made: Local copies of artifacts, for a root in an object store.

    Raises:
      Exception: Any error of BeamDagRunner.
    """
    outcome: futures.Future[None] = futures.Future()

    def work() -> None:
        _settle(outcome, MainThreadRunner().run_with_ir, ir)
        _calls.put(None)

    threading.Thread(target=work, daemon=True).start()
    while (call := _calls.get()) is not None:
        call(wait, copies=made)
    outcome.result()


class NodeDoFn(beam_dag_runner.PipelineNodeAsDoFn):
    """Launches a node with the same events and errors as the local runner."""

    def _run_node(self) -> None:
        arguments = (
            self._pipeline_node,
            self._pipeline,
            self._deployment_config,
            self._mlmd_connection_config,
        )
        launched: futures.Future[None] = futures.Future()
        _calls.put(functools.partial(_settle, launched, launch, *arguments))
        launched.result()


class MainThreadRunner(beam_dag_runner.BeamDagRunner):
    """BeamDagRunner with `NodeDoFn`, set by TFX's attribute for subclasses."""

    _PIPELINE_NODE_DO_FN_CLS = NodeDoFn


def _settle(
    future: futures.Future, function: Callable[..., Any], *arguments: Any, **more: Any
) -> None:
    try:
        future.set_result(function(*arguments, **more))
    except BaseException as error:  # else the waiting thread would wait for ever
        future.set_exception(error)
