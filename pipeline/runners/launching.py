"""Launching one node through TFX's own Launcher, with its events; for all runners."""

from __future__ import annotations

import time
from typing import Any

from strategos.components import events, filesystems
from strategos.components.errors import UserError
from strategos.pipeline.runners import NodeFailedError


def launch(
    node: Any,
    ir: Any,
    deployment: Any,
    connection: Any,
    executor_operators: dict[Any, Any] | None = None,
) -> None:
    """Runs `node`, or takes its outputs from the cache, and reports which.

    Args:
      node: The `PipelineNode` of the IR.
      ir: The whole pipeline.
      deployment: Its `LocalDeploymentConfig`.
      connection: ML Metadata's connection config.
      executor_operators: By type of executor spec, where not TFX's own.

    Raises:
      NodeFailedError: The node failed; published as such in ML Metadata.
    """
    name = node.node_info.id
    events.set_node(name)
    events.emit("node_started")
    started = time.monotonic()
    try:
        state = _launch(node, ir, deployment, connection, executor_operators)
    except Exception as error:
        failure = _failure(name, error)
        seconds = round(time.monotonic() - started, 3)
        events.emit(
            "node_failed",
            cause=failure.cause,
            exit_code=failure.exit_code,
            seconds=seconds,
        )
        raise failure from error
    finally:
        events.set_node(None)
    seconds = round(time.monotonic() - started, 3)
    events.emit("node_finished", node=name, state=state, seconds=seconds)


def _launch(
    node: Any, ir: Any, deployment: Any, connection: Any, executor_operators: Any
) -> str:
    from tfx.orchestration import metadata
    from tfx.orchestration.local import runner_utils
    from tfx.orchestration.portable import launcher, partial_run_utils

    root = ir.runtime_spec.pipeline_root.field_value.string_value
    filesystems.register_with_tfx(root)
    if node.execution_options.run.perform_snapshot:
        with metadata.Metadata(connection) as handle:
            partial_run_utils.snapshot(handle, ir)
    name = node.node_info.id
    info = launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=metadata.Metadata(connection),
        pipeline_info=ir.pipeline_info,
        pipeline_runtime_spec=ir.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, name),
        custom_executor_operators=executor_operators,
    ).launch()
    if info.execution_output_uri:
        return "complete"
    # Not executed: cached, or its inputs could not be resolved, which TFX publishes as
    # a failed execution and passes over in silence.
    with metadata.Metadata(connection) as handle:
        (execution,) = handle.store.get_executions_by_id([info.execution_id])
    if execution.last_known_state != execution.CACHED:
        raise UserError(
            "its inputs are not there: a node before it has no finished execution in "
            "this run. Run without --from, or from an earlier node."
        )
    return "cached"


def _failure(node: str, error: Exception) -> NodeFailedError:
    output = getattr(error, "executor_output", None)  # of TFX's Launcher
    if output is not None:
        result = output.execution_result
        return NodeFailedError(node, result.result_message, result.code)
    if isinstance(error, UserError):
        return NodeFailedError(node, str(error), error.exit_code)
    return NodeFailedError(node, f"{type(error).__name__}: {error}")
