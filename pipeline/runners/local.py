"""The local runner: LocalDagRunner's loop, with executors in one warm process.

The loop looks nodes up in the cache, which needs neither TensorFlow nor Beam. The
executor process starts at the first node that is not cached. A remote root needs
TensorFlow even to list files, so its nodes are launched in the executor process.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from strategos.components import events
from strategos.components.errors import InterruptedRunError, UserError
from strategos.components.files import filesystems
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners import NodeFailedError, light
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.launching import launch


class LocalRunner:
    """Runs a plan node by node; executors run in the executor process."""

    def __init__(self, executors: ExecutorClient):
        """Starts no process yet.

        Args:
          executors: The client of the executor process.
        """
        self._executors = executors

    def run(self, plan: Plan) -> None:
        """See `Runner.run`.

        Raises:
          NodeFailedError: A node failed; later nodes did not run.
        """
        light.hide_heavy_imports()
        events.open_sink(str(plan.events))
        deployment = tfx_adapter.deployment_config(plan.ir)
        for node in plan.ir.nodes:
            if node.pipeline_node.execution_options.HasField("skip"):
                continue
            if filesystems.is_remote(plan.root):
                self._launch_in_process(node.pipeline_node.node_info.id, plan)
                continue
            launch(
                node.pipeline_node,
                plan.ir,
                deployment,
                plan.connection,
                plan.metadata_wait,
                tfx_adapter.executor_operators(
                    functools.partial(_execute, self._executors, plan.environment)
                ),
            )

    def _launch_in_process(self, node: str, plan: Plan) -> None:
        """Launches a node in the executor process, and reports if that process dies."""
        try:
            self._executors.launch(node, plan)
            return
        except KeyboardInterrupt:
            failure = NodeFailedError(node, InterruptedRunError("interrupted"))
        except UserError as death:
            failure = NodeFailedError(node, death)
        events.emit("node_failed", **failure.to_json())
        raise failure


def _execute(
    executors: ExecutorClient, environment: Mapping[str, str], spec: Any, info: Any
) -> Any:
    """Runs an execution in the executor process."""
    try:
        return executors.execute(spec, info, environment)
    except KeyboardInterrupt:
        # The Launcher publishes and cleans up after an Exception only.
        raise InterruptedRunError("interrupted") from None
