"""Adapter to the internals of TFX: all uses outside of its public API.

Two exceptions: `runners/beam_nodes.py` has the subclasses of BeamDagRunner's classes,
because Beam pickles classes by name; `components/user_node/docker_run.py`, which may
not import `pipeline`, resolves the placeholders of commands. Each function has its own
imports: the orchestrator must import neither TensorFlow nor Beam, and only the executor
process may import the operators. The module is in `plan`, the lowest floor that uses
it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strategos.components.errors import UserError

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2
    from tfx.orchestration.metadata import Metadata
    from tfx.orchestration.pipeline import Pipeline
    from tfx.orchestration.portable.data_types import ExecutionInfo
    from tfx.proto.orchestration import execution_result_pb2, pipeline_pb2
    from tfx.types import Artifact


def import_launcher() -> None:
    """Imports TFX's Launcher and its dependencies."""
    import tfx.orchestration.portable.launcher  # noqa: F401


def compile_ir(pipeline: Pipeline) -> pipeline_pb2.Pipeline:
    """Compiles a pipeline to its IR."""
    from tfx.dsl.compiler.compiler import Compiler

    return Compiler().compile(pipeline)


def substitute(ir: pipeline_pb2.Pipeline, values: Mapping[str, Any]) -> None:
    """Replaces the runtime parameters of an IR by their values, in place.

    Args:
      ir: The compiled pipeline.
      values: A value for each runtime parameter, by name.
    """
    from tfx.orchestration.portable import runtime_parameter_utils

    runtime_parameter_utils.substitute_runtime_parameter(ir, dict(values))


def mark_part(
    ir: pipeline_pb2.Pipeline,
    from_node: str | None,
    to_node: str | None,
    base_run: str | None,
) -> list[str]:
    """Marks the nodes of an IR that a partial run skips, in place.

    Args:
      ir: All nodes.
      from_node: The first node to run; None for the first of all.
      to_node: The last node to run; None for the last of all.
      base_run: Id of the run that provides the outputs of skipped nodes; None for the
        last run of the pipeline.

    Returns:
      The ids of the nodes that run; none if `to_node` needs nothing of `from_node`.
    """
    from tfx.orchestration.portable import partial_run_utils
    from tfx.proto.orchestration import pipeline_pb2 as ir_pb2

    settings = ir_pb2.SnapshotSettings()
    if base_run:
        partial_run_utils.set_base_pipeline_run_strategy(settings, base_run)
    else:
        partial_run_utils.set_latest_pipeline_run_strategy(settings)
    partial_run_utils.mark_pipeline(
        ir,
        from_nodes=[from_node] if from_node else None,
        to_nodes=[to_node] if to_node else None,
        snapshot_settings=settings,
    )
    nodes = (each.pipeline_node for each in ir.nodes)
    return [x.node_info.id for x in nodes if x.execution_options.HasField("run")]


def reused_nodes(ir: pipeline_pb2.Pipeline) -> list[str]:
    """The ids of the nodes with outputs taken from an earlier run by a partial run."""
    from tfx.orchestration.portable import partial_run_utils

    nodes = [node.pipeline_node for node in ir.nodes]
    reuses = partial_run_utils.should_attempt_to_reuse_artifact
    return [node.node_info.id for node in nodes if reuses(node.execution_options)]


def deployment_config(ir: pipeline_pb2.Pipeline) -> Any:
    """The `LocalDeploymentConfig` of an IR: the executor of each node."""
    from tfx.orchestration.local import runner_utils

    return runner_utils.extract_local_deployment_config(ir)


def metadata_handle(
    connection: metadata_store_pb2.ConnectionConfig,
    enter: Callable[[Callable[[], Metadata]], Metadata] = lambda own: own(),
) -> Metadata:
    """Makes a handle to ML Metadata for TFX's functions: a context manager.

    An SQLite file is opened once; to a server, each entry connects again, so that one
    that was restarted meanwhile is no failure.

    Args:
      connection: ML Metadata's.
      enter: Called with the function that opens the connection, to retry it; by
        default calls it once.
    """
    from tfx.orchestration import metadata

    class Handle(metadata.Metadata):
        _opened: Any = None

        def __enter__(self) -> Metadata:
            if self._opened is None:
                entered = enter(super().__enter__)
                if connection.HasField("sqlite"):
                    self._opened = entered.store
                return entered
            self._store: Any = self._opened
            self._users += 1
            return self

    return Handle(connection)


def register_contexts(handle: Metadata, node: pipeline_pb2.PipelineNode) -> None:
    """Writes the contexts of a node into ML Metadata, including the run's context."""
    from tfx.orchestration.portable.mlmd import context_lib

    context_lib.prepare_contexts(handle, node.contexts)


def snapshot(handle: Metadata, ir: pipeline_pb2.Pipeline) -> None:
    """Registers the last run's outputs of skipped nodes, for a partial run.

    Raises:
      UserError: The last run has none of a node.
    """
    from tfx.orchestration.portable import partial_run_utils

    try:
        partial_run_utils.snapshot(handle, ir)
    except LookupError as error:
        raise UserError(
            f"--from takes the outputs of earlier nodes from the last run: {error}",
            remedy="Run without --from, or from an earlier node.",
        ) from error


def launch(
    node: pipeline_pb2.PipelineNode,
    ir: pipeline_pb2.Pipeline,
    deployment: Any,
    handle: Metadata,
    executor_operators: Mapping[Any, Any] | None,
) -> ExecutionInfo:
    """Runs a node, or takes its outputs from the cache, by TFX's Launcher.

    Args:
      node: A node of `ir`.
      ir: The whole pipeline.
      deployment: From `deployment_config`.
      handle: From `metadata_handle`.
      executor_operators: From `executor_operators`; None for TFX's own.
    """
    from tfx.orchestration.local import runner_utils
    from tfx.orchestration.portable import launcher

    return launcher.Launcher(
        pipeline_node=node,
        mlmd_connection=handle,
        pipeline_info=ir.pipeline_info,
        pipeline_runtime_spec=ir.runtime_spec,
        executor_spec=runner_utils.extract_executor_spec(deployment, node.node_info.id),
        custom_executor_operators=executor_operators,
    ).launch()


def executor_operators(
    execute: Callable[[Any, ExecutionInfo], execution_result_pb2.ExecutorOutput],
) -> dict[Any, Any]:
    """Makes executor operators for `launch` that call `execute`.

    Args:
      execute: Returns the executor's output, given its spec and the execution.

    Returns:
      The operator classes by type of executor spec.
    """
    from tfx.orchestration.portable import base_executor_operator
    from tfx.proto.orchestration import executable_spec_pb2

    python_spec = executable_spec_pb2.PythonClassExecutableSpec
    beam_spec = executable_spec_pb2.BeamExecutableSpec

    class Operator(base_executor_operator.BaseExecutorOperator):
        SUPPORTED_EXECUTOR_SPEC_TYPE = [python_spec, beam_spec]
        SUPPORTED_PLATFORM_CONFIG_TYPE: list[Any] = []

        def run_executor(
            self, execution_info: ExecutionInfo
        ) -> execution_result_pb2.ExecutorOutput:
            return execute(self._executor_spec, execution_info)

    return dict.fromkeys((python_spec, beam_spec), Operator)


def execution_as_text(spec: Any, execution: ExecutionInfo) -> dict[str, Any]:
    """Serializes an execution for another process.

    Args:
      spec: The executor spec.
      execution: The execution.

    Returns:
      The arguments of `run_executor`, JSON-able.
    """
    from tfx.orchestration.python_execution_binary import (
        python_execution_binary_utils as binary_utils,
    )

    return {
        "beam": type(spec).__name__ == "BeamExecutableSpec",
        "spec": binary_utils.serialize_executable_spec(spec),
        "info": binary_utils.serialize_execution_info(execution),
    }


def relocated(execution: ExecutionInfo, change: Callable[[str], str]) -> ExecutionInfo:
    """A copy of an execution with other URIs.

    Args:
      execution: The execution.
      change: Returns the new URI, given an old one.
    """
    moved = copy.deepcopy(execution)
    for artifact in artifacts(moved.input_dict) + artifacts(moved.output_dict):
        artifact.uri = change(artifact.uri)
    moved.execution_output_uri = change(moved.execution_output_uri)
    moved.stateful_working_dir = change(moved.stateful_working_dir)
    moved.tmp_dir = change(moved.tmp_dir)
    return moved


def relocate_output(
    output: execution_result_pb2.ExecutorOutput, change: Callable[[str], str]
) -> None:
    """Changes the URIs in an executor's output, in place.

    Args:
      output: The output. Properties of artifacts may have URIs too.
      change: Returns the new URI, given an old one; other texts as they are.
    """
    for listed in output.output_artifacts.values():
        for artifact in listed.artifacts:
            artifact.uri = change(artifact.uri)
            for value in artifact.custom_properties.values():
                if value.HasField("string_value"):
                    value.string_value = change(value.string_value)


def artifacts(named: Mapping[str, Sequence[Artifact]]) -> list[Artifact]:
    """All artifacts of an execution's inputs or outputs."""
    return [artifact for listed in named.values() for artifact in listed]


def execute(spec: Any, execution: ExecutionInfo) -> execution_result_pb2.ExecutorOutput:
    """Runs an executor in this process by TFX's own operator.

    Args:
      spec: The executor spec.
      execution: The execution.
    """
    return run_executor(**execution_as_text(spec, execution))


def class_path(spec: Any) -> str:
    """The class of the executor that a spec names, as `package.module.Class`.

    Args:
      spec: The executor spec.
    """
    python_spec = getattr(spec, "python_executor_spec", spec)  # of a Beam executor
    return str(python_spec.class_path)


def run_here(name: str, execution: ExecutionInfo) -> Any:
    """Runs an executor in this process; imports neither TensorFlow nor Beam.

    Args:
      name: The executor's class, as `package.module.Class`.
      execution: The execution.

    Returns:
      The executor's output.
    """
    from tfx.orchestration.portable import python_executor_operator
    from tfx.proto.orchestration import executable_spec_pb2

    spec = executable_spec_pb2.PythonClassExecutableSpec(class_path=name)
    operator = python_executor_operator.PythonExecutorOperator(spec)
    return operator.run_executor(execution)


def run_executor(
    beam: bool, spec: str, info: str
) -> execution_result_pb2.ExecutorOutput:
    """Runs an executor in this process by TFX's own operator.

    Args:
      beam: Whether the executor takes Beam's arguments.
      spec: The executor spec, serialized.
      info: The execution, serialized.
    """
    from tfx.orchestration.portable import python_executor_operator
    from tfx.orchestration.python_execution_binary import (
        python_execution_binary_utils as binary_utils,
    )

    operator_class = python_executor_operator.PythonExecutorOperator
    if beam:  # imports Beam, which takes most of a second
        from tfx.orchestration.portable import beam_executor_operator

        operator_class = beam_executor_operator.BeamExecutorOperator
    operator = operator_class(
        binary_utils.deserialize_executable_spec(spec, with_beam=beam)
    )
    return operator.run_executor(binary_utils.deserialize_execution_info(info))
