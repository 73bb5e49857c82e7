"""What the orchestrator writes into ML Metadata about a run as a whole.

TFX records nodes; a run as such is only a context. Its outcome, times and log are
custom properties of that context, so that any machine that reaches the database can
tell what happened. A run without an outcome was interrupted in a way that left no time
to say so, or is on.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strategos.pipeline.runners import Plan


class Journal:
    """Opens the record of one run and closes it with the outcome."""

    def __init__(self, plan: Plan):
        """Takes the run's plan; nothing is written yet."""
        self._plan = plan

    def open(self, **facts: str) -> None:
        """Registers the run, with `facts` such as `runner` and `config`."""
        from tfx.orchestration import metadata
        from tfx.orchestration.portable.mlmd import context_lib

        with metadata.Metadata(self._plan.connection) as handle:
            first = self._plan.ir.nodes[0].pipeline_node
            context_lib.prepare_contexts(handle, first.contexts)
        self._write(
            started=time.time(),
            host=socket.gethostname(),
            pid=os.getpid(),
            log=str(self._plan.log),
            **facts,
        )

    def close(self, outcome: str, **facts: str) -> None:
        """Records the outcome; no execution of an ended run stays `RUNNING`."""
        store, context = self._context()
        for execution in store.get_executions_by_context(context.id):
            if execution.last_known_state in (execution.RUNNING, execution.NEW):
                execution.last_known_state = execution.FAILED
                store.put_executions([execution])
        self._write(finished=time.time(), outcome=outcome, **facts)

    def _write(self, **facts: Any) -> None:
        store, context = self._context()
        for key, value in facts.items():
            field = {str: "string_value", int: "int_value", float: "double_value"}
            setattr(context.custom_properties[key], field[type(value)], value)
        store.put_contexts([context])

    def _context(self) -> tuple[Any, Any]:
        import ml_metadata

        store = ml_metadata.MetadataStore(self._plan.connection)
        name = self._plan.run_id
        return store, store.get_context_by_type_and_name("pipeline_run", name)
