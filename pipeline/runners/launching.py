"""Launches one node through TFX's Launcher and reports its events; for all runners."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strategos.components import events, node_ids
from strategos.components.errors import (
    BadInputError,
    InterruptedRunError,
    PassingError,
    UserError,
)
from strategos.components.files import filesystems, full_disk, object_stores
from strategos.pipeline.history import warned
from strategos.pipeline.plan import caching, tfx_adapter
from strategos.pipeline.root import contents, lease, uses
from strategos.pipeline.root.metadata import is_failure, patiently, unusable
from strategos.pipeline.runners import NodeFailedError, described, read_result
from strategos.pipeline.runners.remote_root import tfx_filesystem

if TYPE_CHECKING:
    from strategos.pipeline.runners.remote_root.artifacts import Copies, Execute

_LONGEST_PAUSE = 60.0  # Seconds before a node is started again.


def launch(
    node: Any,
    ir: Any,
    deployment: Any,
    connection: Any,
    wait: float,
    execute: Execute | None = None,
    copies: Copies | None = None,
) -> None:
    """Runs a node, or takes its outputs from the cache, and reports its events.

    A node that failed for a passing reason is started again, as often as the node's
    `max_execution_retries` allows.

    Args:
      node: The `PipelineNode` of the IR.
      ir: The whole pipeline.
      deployment: Its `LocalDeploymentConfig`.
      connection: ML Metadata's connection config.
      wait: Seconds to wait for a server of ML Metadata that does not answer.
      execute: Runs an executor; by default in this process.
      copies: Local copies of artifacts, for a root in an object store.

    Raises:
      NodeFailedError: The node failed; ML Metadata has a failed execution of it.
    """
    name = node.node_info.id
    events.set_node(name)
    events.emit("node_started")
    started = time.monotonic()
    disk = copies.folder if copies else _root(ir)
    described = functools.partial(_described, connection=connection, disk=disk)
    try:
        operators = _operators(execute, copies)
        state = patient(
            lambda: _launch(node, ir, deployment, connection, wait, operators, copies),
            described,
            node.execution_options.max_execution_retries,
        )
    except (Exception, KeyboardInterrupt) as error:
        failure = NodeFailedError(name, described(error))
        seconds = round(time.monotonic() - started, 3)
        events.emit("node_failed", **failure.to_json(), seconds=seconds)
        raise failure from error
    finally:
        events.set_node(None)
    seconds = round(time.monotonic() - started, 3)
    events.emit("node_finished", node=name, state=state, seconds=seconds)


def patient(
    attempt: Callable[[], str],
    described: Callable[[Exception], UserError],
    retries: int,
    sleep: Callable[[float], Any] = time.sleep,
) -> str:
    """Calls `attempt` again after each passing reason; returns its result.

    Args:
      attempt: Runs the node once.
      described: Converts an error of `attempt` to one for users.
      retries: Largest number of further calls.
      sleep: Waits for a number of seconds; pauses double.

    Raises:
      Exception: The last error of `attempt`.
    """
    pause = 1.0
    while True:
        try:
            return attempt()
        except Exception as error:
            reason = described(error)
            if not retries or not isinstance(reason, PassingError):
                raise
        with contextlib.suppress(OSError):  # the event file may be on the full disk
            message = f"tried again after: {reason.headline}"
            events.emit("warning", message=message)
        sleep(pause)
        retries, pause = retries - 1, min(2 * pause, _LONGEST_PAUSE)


def _operators(execute: Execute | None, copies: Copies | None) -> dict[Any, Any] | None:
    """The executor operators for TFX's Launcher; None for TFX's own."""
    if execute is None and copies is None:
        return None
    work: Execute = execute or tfx_adapter.execute
    if copies:
        work = functools.partial(copies.execute, work)

    def run(spec: Any, info: Any) -> Any:
        try:
            return work(spec, info)
        except KeyboardInterrupt:
            # The Launcher publishes and cleans up after an Exception only.
            raise InterruptedRunError("interrupted") from None

    return tfx_adapter.executor_operators(run)


def _launch(
    node: Any,
    ir: Any,
    deployment: Any,
    connection: Any,
    wait: float,
    executor_operators: Any,
    copies: Copies | None,
) -> str:
    # Each access enters the handle again, and so waits for a server that is away.
    written = events.size(events.sink_path())
    handle = tfx_adapter.metadata_handle(
        connection, lambda enter: patiently(enter, connection, wait)
    )
    root = _root(ir)
    tfx_filesystem.register(root)
    object_stores.check_writable(root)
    name = node.node_info.id
    with handle:
        if not connection.HasField("sqlite"):
            run_id = ir.runtime_spec.pipeline_run_id.field_value.string_value
            lease.reject_lost(handle.store, ir.pipeline_info.id, run_id)
        _reject_lost_history(handle.store, node, root)
        if node.execution_options.run.perform_snapshot:
            tfx_adapter.snapshot(handle, ir)
    try:
        info = tfx_adapter.launch(node, ir, deployment, handle, executor_operators)
    except BaseException:
        with handle:  # an interrupted training may be resumed
            uses.record_node(handle.store, name, events.sink_path())
        raise
    with handle:
        (execution,) = handle.store.get_executions_by_id([info.execution_id])
        if name == node_ids.TRAINER:
            _forget_checkpoints(handle.store, execution, copies)
        executed = bool(info.execution_output_uri)
        if executed:
            uses.record_node(handle.store, name, events.sink_path())
            warned.keep(handle.store, execution.id, name, _warnings(name, written))
        # Not executed: cached, or TFX could not resolve the inputs; then it publishes
        # a failed execution without raising an error.
        elif execution.last_known_state != execution.CACHED:
            raise UserError(
                "inputs are missing: an earlier node has no finished execution in this "
                "run. Run without --from, or from an earlier node."
            )
        key = caching.node_keys(ir)[name]
        contents.record(handle.store, execution.id, root, key)
    return "complete" if executed else "cached"


def _warnings(node: str, start: int) -> list[str]:
    """The warnings of a node in the event file, from a byte on."""
    path = events.sink_path()
    recorded = events.recorded(path, "warning", start) if path else []
    return [str(each["message"]) for each in recorded if each.get("node") == node]


def _reject_lost_history(store: Any, node: Any, root: str) -> None:
    """Rejects a root with outputs that ML Metadata has no record of.

    Ids of executions name output folders: a new database would count from 1 again and
    overwrite the folders.

    Raises:
      BadInputError: The first node has outputs and no execution.
    """
    from tfx.dsl.io import fileio

    folder = f"{root}/{node.node_info.id}"
    outputs = [f"{folder}/{key}/*" for key in node.outputs.outputs]
    if node.upstream_nodes or not any(map(fileio.glob, outputs)):
        return
    contexts = (each for each in node.contexts.contexts if each.type.name == "node")
    name = next(contexts).name.field_value.string_value
    context = store.get_context_by_type_and_name("node", name)
    if context is None or not store.get_executions_by_context(context.id):
        raise BadInputError(
            f"{folder} has outputs of earlier runs, but ML Metadata has no record of "
            "them: its database was removed, or is another one (`run.metadata`). "
            f"Restore it from a backup; or move {root} away (or name another "
            "`run.root`) to start a new history: pushed models elsewhere are not "
            "affected."
        )


def _forget_checkpoints(store: Any, execution: Any, copies: Copies | None) -> None:
    """Removes a training's checkpoints, once its model is published."""
    from strategos.components.trainer import finished

    events = store.get_events_by_execution_ids([execution.id])
    outputs = [each.artifact_id for each in events if each.type == each.OUTPUT]
    for artifact in store.get_artifacts_by_id(outputs) if outputs else ():
        if artifact.type == "Model":
            forget = copies.forget_checkpoints if copies else finished.forget
            forget(artifact.uri)


def _root(ir: Any) -> str:
    return ir.runtime_spec.pipeline_root.field_value.string_value


def _described(error: BaseException, connection: Any, disk: str) -> UserError:
    """Converts a node's error to one for users; `disk` is the folder of its files."""
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError("interrupted")
    if is_failure(error):
        return unusable(connection, error)
    output = getattr(error, "executor_output", None)  # of TFX's Launcher
    if output is not None:
        problem = read_result(output.execution_result)
    elif isinstance(error, UserError):
        return error
    else:
        problem = described(error)
    if full_disk.is_reported(str(problem)) and not filesystems.is_remote(disk):
        return PassingError(full_disk.message(str(problem), disk))
    return problem
