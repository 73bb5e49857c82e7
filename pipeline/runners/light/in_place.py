"""Executors that the orchestrator can run itself: they need no TensorFlow and no Beam.

After a change of bounds no others run, and an executor process would import for seconds
before it ran them. They run no code of the user's.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.pipeline import runners
from strategos.pipeline.plan import tfx_adapter

if TYPE_CHECKING:
    from tfx.orchestration.portable.data_types import ExecutionInfo
    from tfx.proto.orchestration import execution_result_pb2

_OURS = "strategos.components"
_EVALUATOR = f"{_OURS}.evaluator.executor.Executor"
_JUDGING = f"{_OURS}.evaluator.judging_executor.Executor"
_GATE = f"{_OURS}.gate.evaluation.Executor"
_PUSHER = f"{_OURS}.pusher.executor.Executor"
_LOG_FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def execute(
    spec: Any, info: ExecutionInfo, environment: Mapping[str, str], log: Path
) -> execution_result_pb2.ExecutorOutput | None:
    """Runs an executor in this process, if it can.

    Args:
      spec: The executor spec.
      info: The execution.
      environment: Variables for the executor.
      log: The run's log, for the executor's messages.

    Returns:
      The executor's output, a failure in its `execution_result`; None if it needs an
      executor process.
    """
    with _variables(environment), _logging_to(log):
        if name := _suited(tfx_adapter.class_path(spec), info):
            logging.info("==== %s ====", info.pipeline_node.node_info.id)
            return runners.output_of(lambda: tfx_adapter.run_here(name, info))
    return None


def _suited(name: str, info: ExecutionInfo) -> str:
    """The executor to run here in place of `name`; "" if none can."""
    if name == _PUSHER:
        return name if _pushes_to_a_folder(info) else ""
    if name == _EVALUATOR:
        return _JUDGING if _can_be_judged(info) else ""
    return name if name == _GATE else ""


def _pushes_to_a_folder(info: ExecutionInfo) -> bool:
    """Whether the target is a local folder; others may be plug-ins."""
    places = (
        info.exec_properties.get(x) for x in ("push_destination", "custom_config")
    )
    return not any("://" in str(place) for place in places)


def _can_be_judged(info: ExecutionInfo) -> bool:
    """Whether the sums of an earlier evaluation have all that this one asks for."""
    from strategos.components.evaluator.judging import Evaluation

    evaluation = Evaluation.of(info.input_dict, info.output_dict, info.exec_properties)
    return evaluation.kept() is not None


@contextlib.contextmanager
def _variables(environment: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _logging_to(log: Path) -> Iterator[None]:
    """Writes all messages of the block to a file, and none to the terminal."""
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    level, handlers = logging.root.level, list(logging.root.handlers)
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.INFO)
    try:
        yield
    finally:
        logging.root.setLevel(level)
        logging.root.handlers[:] = handlers
        handler.close()
