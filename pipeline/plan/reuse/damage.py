"""Damaged artifacts: a run makes them again instead of taking them from the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strategos.components import events
from strategos.components.errors import UserError
from strategos.pipeline.plan import caching
from strategos.pipeline.root import contents

if TYPE_CHECKING:
    import ml_metadata

    from strategos.pipeline.config.sections import Config


def withdraw(
    ir: Any,
    reused: Mapping[str, str],
    config: Config,
    store: ml_metadata.MetadataStore,
) -> None:
    """Has artifacts that are damaged made again, and reports which ones.

    Args:
      ir: The compiled pipeline, runtime parameters substituted.
      reused: The keys of the nodes that a partial run skips.
      config: The effective settings.
      store: ML Metadata.

    Raises:
      UserError: A partial run may take one of them from a node that it skips.
    """
    keys = {*caching.node_keys(ir).values(), *reused.values()}
    damages = contents.damaged(store, keys, config.run.root)
    if damages and reused:
        raise UserError(
            f"--from takes outputs of earlier nodes: {damages[0]}",
            remedy="Run without --from: what is damaged is made again.",
        )
    contents.withdraw(store, damages)
    for damage in damages:
        events.emit("warning", message=f"{damage}. It is made again.")
