"""Makes an earlier version of the model live again."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import worker_process
from strategos.components.errors import BadInputError, UserError
from strategos.components.pusher import endpoint, targets
from strategos.pipeline.history import models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.models import Version
    from strategos.pipeline.history.store import Store

_PROBE = "strategos.components.infra_validator.probe"
_TYPE = "strategos.Rollback"
_INPUTS = (mlmd.Event.INPUT, mlmd.Event.DECLARED_INPUT)


def roll_back(config: Config, store: Store, wanted: int | None) -> tuple[Version, int]:
    """Pushes a copy of an earlier version as the newest one, and records it.

    Model servers load the newest version, so that the earlier model is live from one
    moment to the next, and the version that is withdrawn stays for a look at it.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      wanted: A version; None for the one before the model that is live.

    Returns:
      The earlier version, and the number of its copy.

    Raises:
      BadInputError: There is no such version, or it is live.
      UserError: The version does not load, or the copy cannot be written or deployed.
    """
    versions = models.versions(store, config.pusher.to)
    version = _choose(versions, wanted, config.pusher.to)
    with targets.local(version.path) as folder:
        _check_that_it_loads(version, folder)
        target = targets.of(config.pusher.to)
        pushed = target.push(folder, config.pusher.keep)
    at = config.pusher.endpoint
    endpoint.follow(at.settings() if at else None, target, pushed)
    _record(store.mlmd, config, version, pushed)
    return version, pushed


def _choose(versions: Sequence[Version], wanted: int | None, to: str) -> Version:
    live = next((each for each in versions if each.live), None)
    others = [each for each in versions if live and each.origin != live.origin]
    if wanted is None:
        earlier = [each for each in others if each.version < live.origin]
        if not earlier:
            raise BadInputError(
                f"{to} has no version before the one that is live",
                key="strategos rollback",
            )
        return earlier[0]
    found = [each for each in versions if each.version == wanted]
    if not found or found[0] not in others:
        known = ", ".join(str(each.version) for each in others) or "none"
        raise BadInputError(
            "which is live" if found else f"and {to} has no such version",
            key="strategos rollback",
            received=str(wanted),
            expected=known,
        )
    return found[0]


def _check_that_it_loads(version: Version, folder: str) -> None:
    request = {"model": folder, "files": [], "requests": 0}
    log = io.StringIO()  # TensorFlow's: of use if the process crashes
    try:
        with contextlib.redirect_stderr(log):
            worker_process.run(
                _PROBE, request, name="probe", env=worker_process.TENSORFLOW
            )
    except worker_process.WorkerError:
        sys.stderr.write(log.getvalue())
        raise
    except UserError as error:
        raise UserError(
            f"version {version.version} does not become live: {error.message}",
            remedy="Choose another version: `strategos models` lists them.",
        ) from error


def _record(
    store: ml_metadata.MetadataStore, config: Config, origin: Version, pushed: int
) -> None:
    """Records the copy as a PushedModel that was made from the earlier one."""
    target = targets.of(config.pusher.to)
    (earlier,) = store.get_artifacts_by_id([origin.artifact]) or (None,)
    artifact = mlmd.Artifact(uri=target.path(pushed), state=mlmd.Artifact.LIVE)
    artifact.type_id = _pushed_model(store)
    if earlier is not None:
        for key, value in earlier.custom_properties.items():
            artifact.custom_properties[key].CopyFrom(value)
    facts = artifact.custom_properties
    facts["pushed"].int_value = 1
    facts["pushed_destination"].string_value = target.path(pushed)
    facts["pushed_version"].string_value = str(pushed)
    facts[models.ROLLBACK_OF].int_value = origin.origin
    kind = store.put_execution_type(mlmd.ExecutionType(name=_TYPE))
    execution = mlmd.Execution(type_id=kind, last_known_state=mlmd.Execution.COMPLETE)
    read = [earlier.id, *_inputs_of(store, earlier.id)] if earlier else []
    inputs = store.get_artifacts_by_id(read) if read else []
    pairs = [(each, mlmd.Event(type=mlmd.Event.INPUT)) for each in inputs]
    pairs.append((artifact, mlmd.Event(type=mlmd.Event.OUTPUT)))
    pipeline = store.get_context_by_type_and_name("pipeline", config.name)
    store.put_execution(execution, pairs, [pipeline] if pipeline else [])


def _pushed_model(store: ml_metadata.MetadataStore) -> int:
    """Id of TFX's artifact type, which a root without a push lacks."""
    try:
        return store.get_artifact_type("PushedModel").id
    except ml_metadata.errors.NotFoundError:
        return store.put_artifact_type(mlmd.ArtifactType(name="PushedModel"))


def _inputs_of(store: ml_metadata.MetadataStore, artifact: int) -> list[int]:
    """The Model that was pushed as an artifact, which warm starts look for."""
    made = store.get_events_by_artifact_ids([artifact])
    executions = {e.execution_id for e in made if e.type not in _INPUTS}
    events = store.get_events_by_execution_ids([min(executions)]) if executions else []
    read = [event.artifact_id for event in events if event.type in _INPUTS]
    found = store.get_artifacts_by_id(read) if read else []
    return [each.id for each in found if each.type == "Model"]
