"""The lineage of a model: every step from the data files to the pushed version.

Follows ML Metadata's events upstream from the model. An execution that was taken from
the cache has the output artifacts of an older run, so each step names the run that
made its outputs, and whether the model's own run only reused them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.errors import UserError
from strategos.pipeline.history.store import (
    Store,
    newest_pushed,
    properties,
    reads_store,
)
from strategos.pipeline.root import RUN_CONTEXT, metadata


@dataclasses.dataclass(frozen=True)
class MadeArtifact:
    """One artifact that a step made.

    Attributes:
      id: The artifact's id in ML Metadata.
      key: The name of the output.
      type: The artifact's type.
      uri: The artifact's path or URL.
      properties: Properties recorded by the executor, JSON texts decoded.
    """

    id: int
    key: str
    type: str
    uri: str
    properties: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class LineageStep:
    """One execution that the model depends on.

    Attributes:
      node: The node's id.
      execution: The execution's id in ML Metadata.
      run_id: The run that executed the step; "" for a rollback or promotion.
      reused: Whether the model's run took the step from the cache.
      started: Unix seconds.
      seconds: Duration.
      parameters: Execution properties, JSON texts decoded.
      outputs: Artifacts that the step made.
      inputs: Ids of the executions that made the step's inputs.
    """

    node: str
    execution: int
    run_id: str
    reused: bool
    started: float
    seconds: float
    parameters: dict[str, Any]
    outputs: tuple[MadeArtifact, ...]
    inputs: tuple[int, ...]

    def facts(self) -> dict[str, Any]:
        """Merges the parameters and the properties of all outputs."""
        facts = dict(self.parameters)
        for output in self.outputs:
            facts |= output.properties
        return facts


@dataclasses.dataclass(frozen=True)
class Lineage:
    """All steps that led to one artifact, usually a pushed model.

    Attributes:
      model: Folder of the model: of the pushed version, else of the artifact.
      version: The pushed version; None if the artifact was not pushed.
      artifact: The artifact's id in ML Metadata.
      made_at: Time of creation, Unix seconds.
      pipeline: The pipeline's name.
      run_id: The run that was named, else the run that made the model.
      steps: Steps in an order in which each follows its inputs; the last made the
        artifact.
    """

    model: str
    version: str | None
    artifact: int
    made_at: float
    pipeline: str
    run_id: str
    steps: tuple[LineageStep, ...]


@reads_store
def lineage(store: Store, model: str) -> Lineage:
    """Traces `model` back to the data.

    Args:
      store: The root's ML Metadata.
      model: A pushed version's path or number, the folder of all versions (for the
        newest), a run's id, an artifact's id or an artifact's folder.

    Raises:
      UserError: No model has that name; the message lists the last models.
    """
    artifact, run_id = _by_run(store, model)
    artifact = artifact or _by_push(store, model) or _by_artifact(store, model)
    if artifact is None:
        raise UserError(_unknown(store, model))
    return _trace(store, artifact, run_id)


@reads_store
def is_pushed(store: Store, path: str) -> bool:
    """Whether `path` is a pushed version, or a folder of pushed versions."""
    return _by_push(store, path) is not None


@reads_store
def steps_of(store: Store, run_id: str) -> tuple[LineageStep, ...]:
    """The steps of a run, in the order of their starts, each with its outputs.

    Args:
      store: The root's ML Metadata.
      run_id: The run's id.
    """
    context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run_id)
    if context is None:
        return ()
    own = sorted(each.id for each in store.mlmd.get_executions_by_context(context.id))
    events = store.mlmd.get_events_by_execution_ids(own) if own else []
    graph, places = _Graph(store, list(events)), store.contexts_of(own)
    known = [each for each in own if each in graph]
    return tuple(graph.step(each, places.get(each, {}), run_id) for each in known)


def to_json(traced: Lineage) -> dict[str, Any]:
    """A lineage as JSON-able values."""
    return dataclasses.asdict(traced)


def _by_run(store: Store, run_id: str) -> tuple[mlmd.Artifact | None, str | None]:
    """The model of a run, and the run's id; (None, None) for an unknown run.

    Raises:
      UserError: The run made no model.
    """
    context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run_id)
    if context is None:
        return None, None
    executions = store.mlmd.get_executions_by_context(context.id)
    outputs = store.outputs_of(execution.id for execution in executions)
    artifacts = [artifact for made in outputs.values() for artifact in made]
    for wanted in (_is_pushed, _is_trained):
        models = [artifact for artifact in artifacts if wanted(artifact)]
        if models:
            return max(models, key=lambda artifact: artifact.id), run_id
    raise UserError(
        f"run {run_id} made no model. See why: `strategos runs show {run_id}`."
    )


def _is_pushed(artifact: mlmd.Artifact) -> bool:
    return artifact.type == "PushedModel" and bool(properties(artifact).get("pushed"))


def _is_trained(artifact: mlmd.Artifact) -> bool:
    """Whether the artifact is a trained Model, and not one that names a baseline."""
    return (
        artifact.type == "Model" and not {"none", "path"} & properties(artifact).keys()
    )


def _by_push(store: Store, model: str) -> mlmd.Artifact | None:
    path = os.path.realpath(model)
    for artifact in newest_pushed(store):
        facts = properties(artifact)
        destination = os.path.realpath(facts["pushed_destination"])
        version = str(facts.get("pushed_version", ""))
        if model == version or path in (destination, os.path.dirname(destination)):
            return artifact
    return None


def _by_artifact(store: Store, model: str) -> mlmd.Artifact | None:
    if model.isdecimal():
        candidates = store.mlmd.get_artifacts_by_id([int(model)])
    else:
        candidates = store.mlmd.get_artifacts_by_uri(model.rstrip("/"))
        candidates = candidates or store.mlmd.get_artifacts_by_uri(
            os.path.realpath(model)
        )
    return candidates[-1] if candidates else None


def _unknown(store: Store, model: str) -> str:
    newest = itertools.islice(newest_pushed(store), 3)
    last = [properties(artifact)["pushed_destination"] for artifact in newest]
    known = f"Pushed last: {', '.join(last)}" if last else "None was pushed"
    return (
        f"{model}: no such model. {known}. Name a pushed version's path or number, a "
        "run (see `strategos runs`) or an artifact's id."
        f"{metadata.removed_hint(store.root)}"
    )


def _trace(store: Store, artifact: mlmd.Artifact, run_id: str | None) -> Lineage:
    graph = _Graph(store, store.upstream(artifact.id))
    order = list(graph.ordered(artifact.id))
    places = store.contexts_of(order)
    last = places.get(order[-1], {}) if order else {}
    # Rollbacks and promotions belong to no run: take the run of the model.
    behind = (places.get(each, {}).get(RUN_CONTEXT) for each in reversed(order))
    run_id = run_id or next(filter(None, behind), "")
    facts = properties(artifact)
    return Lineage(
        model=facts.get("pushed_destination") or artifact.uri,
        version=facts.get("pushed_version"),
        artifact=artifact.id,
        made_at=artifact.create_time_since_epoch / 1000,
        pipeline=last.get("pipeline", ""),
        run_id=run_id,
        steps=tuple(graph.step(each, places.get(each, {}), run_id) for each in order),
    )


class _Graph:
    """The executions that led to an artifact, indexed by their events."""

    def __init__(self, store: Store, events: Sequence[mlmd.Event]):
        executions = sorted({event.execution_id for event in events})
        artifacts = sorted({event.artifact_id for event in events})
        records = store.mlmd.get_executions_by_id(executions) if events else []
        self._executions = {execution.id: execution for execution in records}
        known = store.mlmd.get_artifacts_by_id(artifacts) if events else []
        self._artifacts = {artifact.id: artifact for artifact in known}
        self._producer: dict[int, int] = {}
        self._inputs: dict[int, list[int]] = {}
        self._outputs: dict[int, list[tuple[int, str]]] = {}
        for event in events:
            execution, artifact = event.execution_id, event.artifact_id
            if event.type == mlmd.Event.INPUT:
                self._inputs.setdefault(execution, []).append(artifact)
            elif event.type == mlmd.Event.OUTPUT:
                self._producer[artifact] = execution
                key = next((s.key for s in event.path.steps if s.key), "")
                self._outputs.setdefault(execution, []).append((artifact, key))

    def __contains__(self, execution: int) -> bool:
        return execution in self._executions

    def ordered(self, artifact: int) -> Iterator[int]:
        """Yields the executions that led to an artifact, each after its inputs."""
        done: set[int] = set()

        def visit(execution: int) -> Iterator[int]:
            if execution not in done:
                done.add(execution)
                for needed in self._needs(execution):
                    yield from visit(needed)
                yield execution

        if artifact in self._producer:
            yield from visit(self._producer[artifact])

    def _needs(self, execution: int) -> list[int]:
        inputs = self._inputs.get(execution, [])
        producers = (self._producer[each] for each in inputs if each in self._producer)
        return sorted(set(producers))

    def step(self, execution: int, place: dict[str, str], run_id: str) -> LineageStep:
        record = self._executions[execution]
        started = record.create_time_since_epoch / 1000
        prefix = f"{place.get('pipeline', '')}."
        return LineageStep(
            node=place.get("node", record.type).removeprefix(prefix),
            execution=execution,
            run_id=place.get(RUN_CONTEXT, ""),
            reused=place.get(RUN_CONTEXT, run_id) != run_id,
            started=started,
            seconds=record.last_update_time_since_epoch / 1000 - started,
            parameters=decoded(record),
            outputs=tuple(
                self._output(artifact, key)
                for artifact, key in self._outputs.get(execution, [])
            ),
            inputs=tuple(self._needs(execution)),
        )

    def _output(self, artifact: int, key: str) -> MadeArtifact:
        record = self._artifacts[artifact]
        return MadeArtifact(artifact, key, record.type, record.uri, decoded(record))


def decoded(node: mlmd.Execution | mlmd.Artifact) -> dict[str, Any]:
    """Properties of a node, JSON lists and objects decoded, without empty ones."""
    decoded = {}
    for key, value in sorted(properties(node).items()):
        if isinstance(value, str) and value[:1] in ("{", "["):
            with contextlib.suppress(ValueError):  # It may only look like JSON.
                value = json.loads(value)
        if value not in ("", "null", None):
            decoded[key] = value
    return decoded
