"""What Pusher must know of other pushes, and who may push."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from strategos.components import node_ids
from strategos.components.errors import BadInputError
from strategos.components.pusher import (
    ABORTED_VARIABLE,
    NEWEST_VARIABLE,
    PUSHER_VARIABLE,
    targets,
)
from strategos.pipeline.plan import production
from strategos.pipeline.root import metadata

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2

    from strategos.pipeline.config.sections import Config


def environment(
    ir: Any,
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
    take_over: str | None,
) -> dict[str, str]:
    """Returns the variables by which Pusher knows who pushes, and what it must not.

    To be called before the model in production is read: Pusher rejects newer ones.

    Args:
      ir: The pipeline, with the nodes of a partial run marked.
      config: The effective settings.
      connection: ML Metadata's.
      take_over: As of `planning.Options`.

    Raises:
      BadInputError: Another root pushed the newest version, and is not taken over.
    """
    if not _pushes(ir):
        return {}
    store = metadata.store(connection, config.run.metadata_timeout_seconds)
    who = production.pusher_of(store, config.name, config.run.root)
    for key, folder in config.pusher.folders.items():
        target = targets.of(folder)
        newest = target.newest()
        about = {} if newest is None else target.manifest(newest)
        try:
            production.reject_other(folder, about, who["root"], take_over)
        except BadInputError as error:
            raise config.located(error.but(key=key)) from error
    found = {PUSHER_VARIABLE: json.dumps(who)}
    if config.pusher.canary:
        aborted = production.aborted(store, config.pusher.canary)
        return {**found, ABORTED_VARIABLE: json.dumps(aborted)}
    newest = targets.of(config.pusher.to).newest() or 0
    return {**found, NEWEST_VARIABLE: str(newest)}


def _pushes(ir: Any) -> bool:
    """Whether a run may push a model."""
    nodes = (node.pipeline_node for node in ir.nodes)
    return any(
        node.node_info.id == node_ids.PUSHER
        and not node.execution_options.HasField("skip")
        for node in nodes
    )
