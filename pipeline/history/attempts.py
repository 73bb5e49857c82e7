"""The last push and the attempts since; input to the decision to retrain."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.push_targets import targets
from strategos.components.pusher import SLOT
from strategos.pipeline.history.contexts import named, running, started, with_ids
from strategos.pipeline.history.store import (
    Store,
    newest_pushed,
    properties,
    reads_store,
)
from strategos.pipeline.root import RUN_CONTEXT, recent

Span = tuple[int, int | None]
"""Number and version of a span."""

_MADE = ("blessed", "finished")


@dataclasses.dataclass(frozen=True)
class RunAttempt:
    """One run of a whole pipeline.

    Attributes:
      run_id: The run's id.
      started: Unix seconds.
      ended: Unix seconds; of the start, if the run was killed.
      outcome: As in `runs.Run`.
      spans: The (number, version) of the spans that the run read; None if not recorded.
      data: Fingerprint of these files.
      settings: `caching.settings_key` of the run; None if not recorded.
      at_fault: The spans at fault, by number, each with the fingerprint of its files.
    """

    run_id: str
    started: float
    ended: float
    outcome: str
    spans: tuple[Span, ...] | None = None
    data: str | None = None
    settings: str | None = None
    at_fault: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def made(self) -> bool:
        """Whether the run made a model that may serve."""
        return self.outcome in _MADE

    @property
    def rejected(self) -> bool:
        """Whether a gate ended the run."""
        return self.outcome in ("not blessed", "stopped")

    @property
    def failed(self) -> bool:
        """Whether the run ended without a verdict."""
        return self.outcome in ("failed", "interrupted")


@reads_store
def attempts(store: Store, pipeline: str, target: str) -> list[RunAttempt]:
    """Reads runs, newest first, back to the newest one that made a model.

    Partial runs are left out.

    Args:
      store: The root's ML Metadata.
      pipeline: The pipeline's name.
      target: `caching.target_key`.
    """
    current = running(store)
    newest_first: list[RunAttempt] = []
    for context, name in named(store, recent.runs(store.mlmd)):
        facts = properties(context)
        if name != pipeline or facts.get("part") or not _is_of(facts, target):
            continue
        attempt = _attempt(context, current)
        newest_first.append(attempt)
        if attempt.made:
            break
    return newest_first


@reads_store
def by_id(store: Store, contexts: Sequence[int]) -> list[RunAttempt]:
    """Reads runs, partial ones too, in the given order.

    Args:
      store: The root's ML Metadata.
      contexts: Ids of the runs' contexts in ML Metadata.
    """
    current = running(store)
    return [_attempt(each, current) for each in with_ids(store, contexts)]


def _attempt(context: mlmd.Context, current: Collection[str]) -> RunAttempt:
    facts, begun = properties(context), started(context)
    end = "running" if context.name in current else "interrupted"
    spans = facts.get("spans")
    return RunAttempt(
        run_id=context.name,
        started=begun,
        ended=facts.get("finished", begun),
        outcome=facts.get("outcome") or end,
        spans=_spans(spans) if spans else None,
        data=facts.get("data"),
        settings=facts.get("settings"),
        at_fault=_at_fault(facts),
    )


@reads_store
def rejected_spans(
    store: Store, pipeline: str, target: str
) -> dict[int, tuple[str, str]]:
    """Finds the spans that a gate found at fault, and that no later run has accepted.

    Reads the newest runs, back to one that recorded the result at its start.

    Args:
      store: The root's ML Metadata.
      pipeline: The pipeline's name.
      target: `caching.target_key`.

    Returns:
      By number: the fingerprint of the span's files, and the id of the run.
    """
    rejected: dict[int, tuple[str, str]] = {}
    later: list[tuple[str, dict[str, Any]]] = []
    for context, name in named(store, recent.runs(store.mlmd)):
        facts = properties(context)
        if name != pipeline or not _is_of(facts, target):
            continue
        later.append((context.name, facts))
        if "rejected" in facts:
            known = json.loads(facts["rejected"])
            rejected = {int(number): tuple(about) for number, about in known.items()}
            break
    for run_id, facts in reversed(later):
        for number, fingerprint in _at_fault(facts).items():
            rejected[number] = fingerprint, run_id
        if facts.get("outcome") in _MADE:
            for number, _ in _spans(facts.get("spans") or "[]"):
                rejected.pop(number, None)
    return rejected


@dataclasses.dataclass(frozen=True)
class Push:
    """The last push of a pipeline's model.

    Attributes:
      run_id: The run that pushed the model; "" if a rollback did.
      pushed_at: Unix seconds.
      destination: Folder of the pushed version.
      version: The pushed version.
      spans: The (number, version) of the spans that the model was trained on.
    """

    run_id: str
    pushed_at: float
    destination: str
    version: str
    spans: tuple[Span, ...]


@reads_store
def last_push(
    store: Store, pipeline: str, destination: str, target: str
) -> Push | None:
    """Finds the newest pushed model of a pipeline; None if none was pushed.

    Models that wait do not count: they were not pushed to where models serve.

    Args:
      store: The root's ML Metadata.
      pipeline: The pipeline's name.
      destination: `pusher.to`.
      target: `caching.target_key`.
    """
    for artifact in newest_pushed(store):
        if properties(artifact).get(SLOT):
            continue
        producers = store.producers_of([artifact.id]).values()
        places = store.contexts_of(producers).values()
        place = next(iter(places), {})
        facts, run_id = properties(artifact), place.get(RUN_CONTEXT, "")
        if (
            place.get("pipeline") == pipeline
            and _is_of(_facts_of(store, run_id), target)
            and targets.was_in(facts["pushed_destination"], destination)
        ):
            return Push(
                run_id=run_id,
                pushed_at=artifact.create_time_since_epoch / 1000,
                destination=facts["pushed_destination"],
                version=facts.get("pushed_version", ""),
                spans=trained_on(store, artifact.id),
            )
    return None


def trained_on(store: Store, model: int) -> tuple[Span, ...]:
    """The (number, version) of the spans that ExampleGen read for a model.

    Args:
      store: The root's ML Metadata.
      model: Id of an artifact that was made from the data.
    """
    executions = sorted({event.execution_id for event in store.upstream(model)})
    for execution in store.mlmd.get_executions_by_id(executions):
        recorded = properties(execution).get("spans")
        if recorded:
            return _spans(recorded)
    return ()


def training_examples(store: Store, model: int) -> str | None:
    """URI of the Examples artifact that a model was trained on; None if unknown.

    Args:
      store: The root's ML Metadata.
      model: Id of an artifact that was made from the data.
    """
    executions = sorted({event.execution_id for event in store.upstream(model)})
    read = store.mlmd.get_executions_by_id(executions)
    readers = [each.id for each in read if properties(each).get("spans")]
    outputs = [x for made in store.outputs_of(readers).values() for x in made]
    return next((each.uri for each in outputs if each.type == "Examples"), None)


def _facts_of(store: Store, run_id: str) -> dict[str, Any]:
    """The facts of a run; none for a push without a run, e.g. a rollback."""
    context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run_id)
    return properties(context) if context else {}


def _is_of(facts: Mapping[str, Any], target: str) -> bool:
    """Whether a run was for a target; runs before targets were recorded, for any."""
    return facts.get("target", target) == target


def _at_fault(facts: Mapping[str, Any]) -> dict[int, str]:
    error = json.loads(facts.get("error") or "{}")
    return {
        int(span): fingerprint for span, fingerprint in error.get("spans", {}).items()
    }


def _spans(recorded: str) -> tuple[Span, ...]:
    return tuple((number, version) for number, version in json.loads(recorded))
