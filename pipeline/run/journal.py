"""The record of a run in ML Metadata: its outcome, times and log.

TFX records nodes; a run is only a context. Outcome, times and log are custom properties
of that context, so every machine that reaches the database can read them. A run without
an outcome is still running, or was killed before it could record one.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from strategos.components import events
from strategos.components.errors import UserError
from strategos.pipeline.history import warned
from strategos.pipeline.plan import tfx_adapter
from strategos.pipeline.root import RUN_CONTEXT, metadata, recent

if TYPE_CHECKING:
    import ml_metadata
    from ml_metadata.proto import metadata_store_pb2

    from strategos.pipeline.plan.plan import Plan


class Journal:
    """Opens the record of one run and closes it with the outcome."""

    def __init__(self, plan: Plan):
        """Writes nothing yet.

        Args:
          plan: The plan of the run.
        """
        self._plan = plan

    def open(self, **facts: str) -> None:
        """Registers the run.

        Args:
          **facts: Custom properties to add, e.g. `runner` and `config`.

        Raises:
          UserError: The database cannot be used.
        """
        connection = self._plan.connection
        with metadata.explained(connection):
            with tfx_adapter.metadata_handle(connection) as handle:
                first = self._plan.ir.nodes[0].pipeline_node
                tfx_adapter.register_contexts(handle, first)
            store, context = self._context(0.0)
            _write(
                store,
                context,
                started=time.time(),
                host=socket.gethostname(),
                pid=os.getpid(),
                log=str(self._plan.log),
                **self._plan.facts,
                **facts,
            )

    def close(
        self, outcome: str, failed_node: str, error: UserError | None, *, wait: float
    ) -> None:
        """Records the outcome, and marks executions that are still running as failed.

        Args:
          outcome: How the run ended.
          failed_node: The node that ended the run, or "".
          error: The error of that node.
          wait: Seconds to wait for a server that does not answer.

        Raises:
          UserError: The database cannot be used.
        """
        facts = {"outcome": outcome, "failed_node": failed_node}
        if error is not None:
            facts["error"] = json.dumps(error.to_json())
        if warnings := events.recorded(str(self._plan.events), "warning"):
            facts[warned.PROPERTY] = warned.of_run(warnings)
        store, context = self._context(wait)
        with metadata.explained(self._plan.connection):
            _fail_running(store, context)
            _write(store, context, finished=time.time(), **facts)

    def _context(self, wait: float) -> tuple[Any, Any]:
        store = metadata.store(self._plan.connection, wait)
        name = self._plan.run_id
        return store, store.get_context_by_type_and_name(RUN_CONTEXT, name)


def close_abandoned(
    connection: metadata_store_pb2.ConnectionConfig,
    pipeline: str,
    runs: Collection[str],
) -> None:
    """Closes runs, if their orchestrator died without recording an outcome.

    A run does so at its start, so only runs since the last closed one can be open.

    Args:
      connection: ML Metadata's.
      pipeline: The pipeline's name; the caller holds its lock, and its lease if ML
        Metadata is on a server: then all its runs have certainly ended.
      runs: The ids of runs that have certainly ended, for an SQLite file.
    """
    store = metadata.store(connection, 0.0)
    for context in recent.runs(store):
        if context.custom_properties["pipeline"].string_value != pipeline:
            continue
        if "outcome" in context.custom_properties:
            return
        if context.name in runs or not connection.HasField("sqlite"):
            _fail_running(store, context)
            _write(store, context, outcome="interrupted")


def _fail_running(
    store: ml_metadata.MetadataStore, context: metadata_store_pb2.Context
) -> None:
    for execution in store.get_executions_by_context(context.id):
        if execution.last_known_state in (execution.RUNNING, execution.NEW):
            execution.last_known_state = execution.FAILED
            store.put_executions([execution])


def _write(
    store: ml_metadata.MetadataStore,
    context: metadata_store_pb2.Context,
    **facts: Any,
) -> None:
    for key, value in facts.items():
        field = {str: "string_value", int: "int_value", float: "double_value"}
        setattr(context.custom_properties[key], field[type(value)], value)
    store.put_contexts([context])
