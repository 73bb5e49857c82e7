"""The model in production: its use as baseline and warm start, and who may push."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ml_metadata.proto import metadata_store_pb2

from strategos.components import events, exported, node_ids
from strategos.components.errors import BadInputError
from strategos.components.files.filesystems import is_remote
from strategos.components.push_targets import targets
from strategos.components.pusher import (
    ABORTED,
    ABORTED_VARIABLE,
    NEWEST_VARIABLE,
    PUSHED_BY,
    PUSHER_VARIABLE,
    SLOT,
)
from strategos.components.runtime_parameters import NOTHING
from strategos.pipeline.root import RUN_CONTEXT, identity, recent

if TYPE_CHECKING:
    import ml_metadata

    from strategos.pipeline.config.sections import Config

_MADE = (metadata_store_pb2.Event.OUTPUT, metadata_store_pb2.Event.DECLARED_OUTPUT)


@dataclass(frozen=True)
class Production:
    """A version in the serving folder.

    Attributes:
      path: The SavedModel's folder.
      version: The version's number: Unix seconds of the push.
      candidate: The model's `caching.candidate_key`; "" if unknown.
      baseline: Path of the baseline in its evaluation, or `NOTHING`.
      artifact: Id of the PushedModel artifact; 0 if ML Metadata has none.
      model: Id of the Model artifact that was pushed; 0 if unknown.
      about: The version's manifest, where `described` read it.
    """

    path: str
    version: int
    candidate: str = ""
    baseline: str = NOTHING
    artifact: int = 0
    model: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)


def newest(store: ml_metadata.MetadataStore, destination: str) -> Production | None:
    """Returns the newest version in `destination`, the one that serves; None if empty.

    A version in a moved folder is recognized by its number. Versions without a record
    in ML Metadata are found too, e.g. copied by hand or pushed under another root.

    Args:
      store: ML Metadata.
      destination: `pusher.to`.
    """
    target = targets.of(destination)
    for version in reversed(target.versions()):
        path, artifact = target.path(version), _record(store, target, version)
        if artifact is not None:
            properties = artifact.custom_properties
            return Production(
                path=path,
                version=version,
                candidate=properties["candidate"].string_value,
                baseline=properties["baseline"].string_value,
                artifact=artifact.id,
                model=model_of(store, artifact.id),
            )
        if target.serves(version):
            return unrecorded(store, target, version)
    return None


def _record(
    store: ml_metadata.MetadataStore, target: targets.Target, version: int
) -> metadata_store_pb2.Artifact | None:
    """The PushedModel artifact of a version; of one of its number, if it was moved."""
    moved = None
    for artifact in recent.artifacts(store, "PushedModel"):
        if artifact.custom_properties[SLOT].string_value:
            continue  # it waits, in a folder of its own
        pushed = artifact.custom_properties["pushed_destination"].string_value
        place, name = os.path.split(pushed)
        if name == str(version):
            if targets.of(place).uri == target.uri:
                return artifact
            moved = artifact
    return moved


def unrecorded(
    store: ml_metadata.MetadataStore, target: targets.Target, version: int
) -> Production:
    """Describes a version that ML Metadata does not know.

    If a run of this store was killed between its push and the record of the push, the
    manifest has the same facts. The manifest of another store's run is not used: its
    ids and paths have no meaning here.

    Args:
      store: ML Metadata.
      target: Where the version is.
      version: The version.
    """
    path, about = target.path(version), target.manifest(version)
    run = about.get("run_id")
    if not run or store.get_context_by_type_and_name(RUN_CONTEXT, run) is None:
        return Production(path, version)
    facts = about.get("fingerprint", ""), about.get("baseline", NOTHING)
    return Production(path, version, *facts, model=about.get("model", 0))


def described(destination: str) -> Production | None:
    """Returns the version that serves, from its manifest alone; None if there is none.

    Args:
      destination: `pusher.to`.
    """
    target = targets.of(destination)
    version = target.newest()
    if version is None:
        return None
    path, about = target.path(version), target.manifest(version)
    candidate = about.get("fingerprint", "")
    return Production(
        path, version, candidate, about.get("baseline", path), about=about
    )


def baseline(production: Production | None, candidate: str, fresh: bool) -> str:
    """Returns the path of the model to compare the candidate with; `NOTHING` for none.

    This is the model in production, unless that is the candidate itself (it has the
    same key): then it is the baseline of that model's own evaluation. So an unchanged
    run stays cached.

    Args:
      production: The model in production.
      candidate: This run's `caching.candidate_key`.
      fresh: The candidate is trained again even if nothing changed (`--no-cache`), so
        it is not the model in production.
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
    every: int | None = None,
) -> str:
    """Returns the weights for `trainer.warm_start: latest`; `NOTHING` for none.

    These are the weights of the model in production. If that is the candidate itself,
    they are the weights that it started from, so that an unchanged run stays cached.
    Every `every`th model starts from fresh weights, so that the influence of old data
    ends.

    Args:
      store: ML Metadata.
      production: The model in production.
      candidate: As for `baseline`.
      fresh: As for `baseline`.
      every: `trainer.fresh_every`.
    """
    if production is None:
        return NOTHING
    if not production.model:
        return NOTHING
    (model,) = store.get_artifacts_by_id([production.model])
    if production.candidate == candidate and not fresh:
        return model.custom_properties["warm_start"].string_value or NOTHING
    if every is not None and _generation(store, model, every) >= every:
        return NOTHING
    return f"{model.uri}/{exported.WEIGHTS_DIR}"


def pushed_weights(
    production: Production | None,
    candidate: str,
    fresh: bool,
    every: int | None = None,
) -> str:
    """Returns the weights as `warm_start` does, by the version's manifest alone.

    These are the weights inside of the version (`pusher.weights`); `NOTHING` if it has
    none, e.g. a version that `strategos run` has pushed.

    Args:
      production: The model in production, from `described`.
      candidate: As for `baseline`.
      fresh: As for `baseline`.
      every: `trainer.fresh_every`.
    """
    if production is None or not production.about.get("generation"):
        return NOTHING
    if production.candidate == candidate and not fresh:
        return production.about["warm_start"]
    if every is not None and production.about["generation"] >= every:
        return NOTHING
    return f"{production.path}/{exported.PUSHED_WEIGHTS}"


def _generation(
    store: ml_metadata.MetadataStore, model: metadata_store_pb2.Artifact, most: int
) -> int:
    """Number of models from the last fresh weights to `model`, itself included."""
    for generation in range(1, most):
        weights = model.custom_properties["warm_start"].string_value or NOTHING
        before = store.get_artifacts_by_uri(os.path.dirname(weights))
        if weights == NOTHING or not before:
            return generation
        model = before[0]
    return most


def pusher_of(
    store: ml_metadata.MetadataStore, pipeline: str, root: str
) -> dict[str, str]:
    """Returns the entry `PUSHED_BY` for the manifests of a root's pushes.

    Args:
      store: ML Metadata.
      pipeline: The pipeline's name.
      root: The pipeline root.
    """
    place = root if is_remote(root) else f"{socket.gethostname()}:{root}"
    return {"root": identity.of(store), "pipeline": pipeline, "place": place}


def reject_other(
    destination: str, about: Mapping[str, Any], root: str, take_over: str | None
) -> None:
    """Rejects a run that would push where another root pushed the newest version.

    Args:
      destination: `pusher.to` or `pusher.canary`.
      about: The manifest of the newest version; {} without one.
      root: The identity of the run's root.
      take_over: As in `planning.RunOptions`.

    Raises:
      BadInputError: Another root did, and is not taken over.
    """
    other = about.get(PUSHED_BY)
    if not other or other.get("root") == root or take_over in other.values():
        return
    place = other.get("place")
    raise BadInputError(
        f"the newest version there was pushed by pipeline "
        f"`{other.get('pipeline')}` of another root, {place}",
        key="pusher.to",
        received=destination,
        remedy="Set another folder; or, if this root takes its place: "
        f"--take-over {place}",
    )


def aborted(store: ml_metadata.MetadataStore, slot: str) -> list[int]:
    """Returns the ids of the models that were canaries in a slot and were aborted.

    Args:
      store: ML Metadata.
      slot: `pusher.canary`.
    """
    models = []
    for artifact in recent.artifacts(store, "PushedModel"):
        properties = artifact.custom_properties
        model = properties[ABORTED].int_value
        pushed = properties["pushed_destination"].string_value
        if model and targets.was_in(pushed, slot):
            models.append(model)
    return models


def model_of(store: ml_metadata.MetadataStore, pushed: int) -> int:
    """Returns the id of the Trainer's Model that was pushed; 0 if unknown.

    Args:
      store: ML Metadata.
      pushed: Id of the PushedModel.
    """
    events = store.get_events_by_artifact_ids([pushed])
    pushes = [event.execution_id for event in events if event.type in _MADE]
    if not pushes:
        return 0
    events = store.get_events_by_execution_ids([min(pushes)])
    inputs = [event.artifact_id for event in events if event.type not in _MADE]
    artifacts = store.get_artifacts_by_id(inputs) if inputs else []
    return next((each.id for each in artifacts if each.type == "Model"), 0)


def push_environment(
    ir: Any,
    config: Config,
    store: ml_metadata.MetadataStore,
    take_over: str | None,
) -> dict[str, str]:
    """Returns Pusher's variables: this root, aborted canaries or the newest version.

    To be called before the model in production is read: Pusher rejects newer ones.

    Args:
      ir: The pipeline, with the nodes of a partial run marked.
      config: The effective settings.
      store: ML Metadata.
      take_over: As in `planning.RunOptions`.

    Raises:
      BadInputError: Another root pushed the newest version, and is not taken over.
    """
    pusher = config.pusher
    if pusher is None or not _pushes(ir):
        return {}
    who = pusher_of(store, config.name, config.run.root)
    agreed = take_over is None
    for key, folder in pusher.folders.items():
        target = targets.of(folder)
        newest = target.newest()
        about = {} if newest is None else target.manifest(newest)
        agreed = agreed or take_over in (about.get(PUSHED_BY) or {}).values()
        if _is_begun_anew(store, config, about.get(PUSHED_BY) or {}, who):
            events.emit(
                "note",
                message=f"{key}: the newest version was pushed by this pipeline from "
                f"{who['place']} before that root was deleted; this root takes its "
                "place",
            )
            continue
        try:
            reject_other(folder, about, who["root"], take_over)
        except BadInputError as error:
            raise config.located(error.but(key=key)) from error
    if not agreed:
        message = f"--take-over {take_over} has no effect: no newest version is of it"
        events.emit("note", message=message)
    variables = {PUSHER_VARIABLE: json.dumps(who)}
    if pusher.canary:
        models = aborted(store, pusher.canary)
        return {**variables, ABORTED_VARIABLE: json.dumps(models)}
    newest = pusher.target.newest() or 0
    return {**variables, NEWEST_VARIABLE: str(newest)}


def _is_begun_anew(
    store: ml_metadata.MetadataStore,
    config: Config,
    other: Mapping[str, str],
    who: Mapping[str, str],
) -> bool:
    """Whether a deleted root at this very place made a push, and this one none yet.

    A URL is no such place: it is the same for operators with a history each.
    """
    same = all(other.get(name) == who[name] for name in ("pipeline", "place"))
    new = same and other.get("root") != who["root"] and not is_remote(config.run.root)
    return new and next(recent.artifacts(store, "PushedModel"), None) is None


def _pushes(ir: Any) -> bool:
    """Whether a run may push a model."""
    nodes = (node.pipeline_node for node in ir.nodes)
    return any(
        node.node_info.id == node_ids.PUSHER
        and not node.execution_options.HasField("skip")
        for node in nodes
    )
