"""Copies of pushed versions that become live without a run: rollback and promotion."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.push_targets import reports, targets
from strategos.components.pusher import ABORTED, SLOT
from strategos.pipeline.history.models import PROMOTED_FROM, ROLLBACK_OF, Version
from strategos.pipeline.plan import production

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
_PROBE = "strategos.components.infra_validator.probe"
_OF_ONE = (SLOT, ABORTED, ROLLBACK_OF, PROMOTED_FROM)
"""Properties of one PushedModel that a copy does not share."""


def check_that_it_loads(version: Version, folder: str) -> None:
    """Loads a model in a new process, to check it.

    Args:
      version: The version with the model.
      folder: A local folder with its content.

    Raises:
      UserError: The model does not load.
      WorkerError: The process crashed; its output was written to standard error.
    """
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


def record(
    store: ml_metadata.MetadataStore,
    config: Config,
    origin: Version,
    path: str,
    kind: str,
    facts: Mapping[str, int | str],
) -> None:
    """Records a version as a PushedModel that was made from another one.

    Args:
      store: ML Metadata.
      config: The effective settings, with `pusher`.
      origin: The version that has the same model.
      path: The version to record.
      kind: Name of the type of the execution.
      facts: Custom properties, besides those that every copy shares.
    """
    artifact = mlmd.Artifact(uri=path, state=mlmd.Artifact.LIVE)
    artifact.type_id = _pushed_model(store)
    read = _describe(store, origin, artifact)
    place = {"pushed_destination": path, "pushed_version": path.rpartition("/")[2]}
    _set(artifact, {"pushed": 1, **place, **facts})
    type_id = store.put_execution_type(mlmd.ExecutionType(name=kind))
    execution = mlmd.Execution(
        type_id=type_id, last_known_state=mlmd.Execution.COMPLETE
    )
    inputs = store.get_artifacts_by_id(read) if read else []
    pairs = [(each, mlmd.Event(type=mlmd.Event.INPUT)) for each in inputs]
    pairs.append((artifact, mlmd.Event(type=mlmd.Event.OUTPUT)))
    pipeline = store.get_context_by_type_and_name("pipeline", config.name)
    store.put_execution(execution, pairs, [pipeline] if pipeline else [])


def copy_report(origin: Version, path: str) -> None:
    """Copies the report beside a version to its copy; a failure is only reported.

    Args:
      origin: The version.
      path: The copy.
    """
    source, target = (
        targets.of(each.rpartition("/")[0]) for each in (origin.path, path)
    )
    number = int(path.rpartition("/")[2])
    if problem := reports.copy(source, origin.version, target, number):
        print(
            f"strategos: {path} is without its report: {problem}",
            file=sys.stderr,
        )


def mark(
    store: ml_metadata.MetadataStore, version: Version, facts: Mapping[str, int | str]
) -> None:
    """Adds properties to the record of a version, if it has one.

    Args:
      store: ML Metadata.
      version: The version.
      facts: The properties.
    """
    if facts and version.artifact:
        (artifact,) = store.get_artifacts_by_id([version.artifact])
        _set(artifact, facts)
        store.put_artifacts([artifact])


def _set(artifact: mlmd.Artifact, facts: Mapping[str, int | str]) -> None:
    for key, value in facts.items():
        field = "int_value" if isinstance(value, int) else "string_value"
        setattr(artifact.custom_properties[key], field, value)


def _describe(
    store: ml_metadata.MetadataStore, origin: Version, copy: mlmd.Artifact
) -> list[int]:
    """Copies the facts of a version to `copy`; returns the ids of artifacts behind it.

    A version without a record, e.g. because its run was killed before writing it, has
    its facts from the manifest.
    """
    if origin.artifact:
        (earlier,) = store.get_artifacts_by_id([origin.artifact])
        for key, value in earlier.custom_properties.items():
            if key not in _OF_ONE:
                copy.custom_properties[key].CopyFrom(value)
        model = production.model_of(store, earlier.id)
        return [earlier.id, *([model] if model else [])]
    folder = origin.path.rpartition("/")[0]
    known = production.unrecorded(store, targets.of(folder), origin.version)
    copy.custom_properties["candidate"].string_value = known.candidate
    copy.custom_properties["baseline"].string_value = known.baseline
    return [known.model] if known.model else []


def _pushed_model(store: ml_metadata.MetadataStore) -> int:
    """Id of TFX's artifact type, which a root without a push lacks."""
    try:
        return store.get_artifact_type("PushedModel").id
    except ml_metadata.errors.NotFoundError:
        return store.put_artifact_type(mlmd.ArtifactType(name="PushedModel"))
