"""The model in production, and which model a candidate has to be compared with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ml_metadata.proto import metadata_store_pb2

from strategos.components import exported
from strategos.components.pusher import targets
from strategos.components.runtime_parameters import NOTHING

if TYPE_CHECKING:
    import ml_metadata


_MADE = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.DECLARED_OUTPUT)


@dataclass(frozen=True)
class Production:
    """A version in the serving folder.

    Attributes:
      path: The SavedModel's folder.
      version: Its number, unix seconds of the push.
      candidate: Its `caching.candidate_key`; "" if unknown.
      baseline: Path of the model that it was judged against, or `NOTHING`.
      artifact: Id of its artifact; 0 if ML Metadata has none.
    """

    path: str
    version: int
    candidate: str = ""
    baseline: str = NOTHING
    artifact: int = 0


def newest(store: ml_metadata.MetadataStore, destination: str) -> Production | None:
    """The newest version in `destination`: the one that serves.

    A version that was moved there with its folder is known by its number. ML Metadata
    lacks versions that were copied there by hand, pushed under another root, or whose
    record was lost. They serve all the same.
    """
    target = targets.of(destination)
    there = {target.path(version): version for version in target.versions()}
    pushed: dict[str, Production] = {}
    for artifact in store.get_artifacts_by_type("PushedModel"):
        properties = artifact.custom_properties
        place, name = os.path.split(properties["pushed_destination"].string_value)
        here = f"{target.uri}/{name}"
        is_new = here not in pushed or targets.of(place).uri == target.uri
        if here in there and is_new:
            pushed[here] = Production(
                path=here,
                version=there[here],
                candidate=properties["candidate"].string_value,
                baseline=properties["baseline"].string_value,
                artifact=artifact.id,
            )
    served = {
        path: Production(path, version)
        for path, version in there.items()
        if target.serves(version)
    }
    return max((served | pushed).values(), key=lambda each: each.version, default=None)


def baseline(production: Production | None, candidate: str, fresh: bool) -> str:
    """The path of the model to compare the candidate with; `NOTHING` for none.

    The model in production; but where that was made from just what this run is made
    from, it is this very candidate, and the baseline is what it was judged against. So
    an unchanged run stays cached.

    Args:
      production: What serves now.
      candidate: This run's `caching.candidate_key`.
      fresh: The candidate is trained anew even if nothing changed (`--no-cache`), so
        it is another model than the one in production.
    """
    if production is None:
        return NOTHING
    if production.candidate == candidate and not fresh:
        return production.baseline
    return production.path


def warm_start(
    store: ml_metadata.MetadataStore,
    production: Production | None,
    candidate: str,
    fresh: bool,
) -> str:
    """The weights that `trainer.warm_start: latest` means; `NOTHING` for none.

    Those of the model in production; but where that is this very candidate, those that
    it started from itself. So an unchanged run stays cached, as with `baseline`.
    """
    if production is None:
        return NOTHING
    model = _trained(store, production)
    if production.candidate == candidate and not fresh:
        return model.custom_properties["warm_start"].string_value or NOTHING
    return f"{model.uri}/{exported.WEIGHTS_DIR}"


def _trained(
    store: ml_metadata.MetadataStore, production: Production
) -> metadata_store_pb2.Artifact:
    """What Pusher pushed: the Trainer's Model."""
    events = store.get_events_by_artifact_ids([production.artifact])
    pushes = [event.execution_id for event in events if event.type in _MADE]
    events = store.get_events_by_execution_ids([min(pushes)])
    inputs = [event.artifact_id for event in events if event.type not in _MADE]
    models = (a for a in store.get_artifacts_by_id(inputs) if a.type == "Model")
    return next(models)
