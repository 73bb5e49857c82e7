"""Gathers what a decision to retrain depends on."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from strategos.components.example_gen import spans
from strategos.components.example_gen.listing import NoneCompleteError
from strategos.pipeline.config.sections import Schedule
from strategos.pipeline.plan import caching, retraining
from strategos.pipeline.plan.retraining import Decision
from strategos.pipeline.root.state import file_hashes

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2

    from strategos.components.example_gen.listing import Listing
    from strategos.pipeline.config.sections import Config


def decide(
    config: Config,
    data: Listing,
    connection: metadata_store_pb2.ConnectionConfig,
) -> Decision:
    """Decides whether a run is due now.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      connection: ML Metadata's.

    Raises:
      UserError: ML Metadata cannot be read.
    """
    if config.data.prepare and data.is_empty:
        reason = "Due: no data exist yet; `data.prepare` makes them."
        return Decision(True, reason, "first", ())
    try:
        chosen = data.chosen
    except NoneCompleteError as error:
        return Decision(False, f"Not due: {error.message}.", "", ())
    facts = retraining.Facts(
        now=time.time(),
        spans=[(span.number, span.version) for span in chosen],
        data=spans.fingerprint(chosen, file_hashes(config.run.root)),
        settings=caching.settings_key(config),
        pushes=config.pusher is not None,
        **_history(config, connection),
    )
    return retraining.decide(facts, config.schedule or Schedule())


def to_json(decision: Decision) -> dict[str, Any]:
    """Converts a decision to JSON-able values."""
    return dataclasses.asdict(decision)


def _history(
    config: Config, connection: metadata_store_pb2.ConnectionConfig
) -> dict[str, Any]:
    """The attempts and the last push; none if nothing has run."""
    from strategos.pipeline.history import attempts
    from strategos.pipeline.history.store import NoRunsError, Store

    try:
        store = Store(connection, root=config.run.root)
    except NoRunsError:
        return {}
    return {
        "attempts": attempts.attempts(store, config.name),
        "push": attempts.last_push(store, config.name) if config.pusher else None,
    }
