"""The local runner: LocalDagRunner's loop, with executors in one warm process.

The loop looks nodes up in the cache, which needs neither TensorFlow nor Beam. The
executor process starts at the first node that is not cached and needs TensorFlow or
Beam (`light.in_place`). Under a root in an object store, executors work on local
copies.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strategos.components import events
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.runners import light
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.launching import launch
from strategos.pipeline.runners.light import in_place
from strategos.pipeline.runners.remote_root import artifacts


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
        nodes = [
            node.pipeline_node
            for node in plan.ir.nodes
            if not node.pipeline_node.execution_options.HasField("skip")
        ]
        deployment = tfx_adapter.deployment_config(plan.ir)
        with artifacts.of(plan.root, plan.environment) as made:
            execute = functools.partial(
                _execute,
                *(self._executors, plan.environment, made is not None, plan.log),
            )
            for node in nodes:
                launch(
                    *(node, plan.ir, deployment, plan.connection),
                    *(plan.metadata_wait, execute, made),
                )


def _execute(
    executors: ExecutorClient,
    environment: Mapping[str, str],
    on_copies: bool,
    log: Path,
    spec: Any,
    info: Any,
) -> Any:
    """Runs an execution in the executor process; here if possible, until it starts."""
    if not (executors.is_started or on_copies):
        output = in_place.execute(spec, info, environment, log)
        if output is not None:
            return output
    try:
        return executors.execute(spec, info, environment)
    except KeyboardInterrupt:
        if on_copies:  # before these are removed, and checkpoints copied a last time
            executors.end()
        raise
