"""The pushed versions of a model: which one is live, and where each came from."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.push_targets import reports, targets
from strategos.components.pusher import ABORTED, CANARY, SLOT
from strategos.pipeline.history.attempts import Span, trained_on
from strategos.pipeline.history.store import (
    Store,
    newest_pushed,
    properties,
    reads_store,
)
from strategos.pipeline.root import RUN_CONTEXT

ROLLBACK, PROMOTION = "strategos.Rollback", "strategos.Promotion"
"""Types of the executions that make a version live without a run."""

_OLDEST = 1_500_000_000  # in 2017, before any push

ROLLBACK_OF = "rollback_of"
"""Property of a PushedModel that a rollback made: the version it is a copy of."""

DECIDED_BY, DECIDED_BECAUSE = "decided_by", "decided_because"
"""Properties of a PushedModel that a person approved or vetoed: who, and why."""

PROMOTED_FROM = "promoted_from"
"""Property of a PushedModel that was a canary before: its version in the slot."""


@dataclasses.dataclass(frozen=True)
class Version:
    """One version in the target of pushes.

    Attributes:
      version: Its number.
      path: Its folder.
      live: Whether model servers load it: the newest complete version.
      pushed_at: Unix seconds, from ML Metadata or from the number of a version with a
        manifest; None if unknown.
      run_id: The run that pushed the model first.
      spans: The (number, version) of the spans that the model was trained on.
      metrics: Overall metrics of the model's evaluation.
      rollback_of: The version that this one is a copy of, if a rollback made it.
      promoted_from: The version in the canary slot that this one is a copy of.
      slot: `canary` for a version on trial, `approval` for one that waits for a person;
        "" for a version in `pusher.to`.
      decided_by: Who approved or vetoed the model; "" if nobody did.
      decided_because: Their reason.
      aborted: Whether the version is a canary that was aborted.
      strategy: The strategy that the model was trained under; "" if unknown.
      fingerprint: `caching.candidate_key` of the model; "" if unknown.
      signatures: Hash of the model's signatures; "" if unknown.
      report: Path or URL of the report beside the version; "" without one.
      artifact: Id of the PushedModel artifact; 0 if unknown.
      model: Id of the Model artifact; 0 if unknown.
    """

    version: int
    path: str
    live: bool = False
    pushed_at: float | None = None
    run_id: str | None = None
    spans: tuple[Span, ...] = ()
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    rollback_of: int | None = None
    promoted_from: int | None = None
    slot: str = ""
    decided_by: str = ""
    decided_because: str = ""
    aborted: bool = False
    strategy: str = ""
    fingerprint: str = ""
    signatures: str = ""
    report: str = ""
    artifact: int = 0
    model: int = 0

    @property
    def origin(self) -> int:
        """The version that first had this model."""
        return self.rollback_of or self.version

    def has_model_of(self, other: Version | None) -> bool:
        """Whether both versions certainly have the same model."""
        if other is None or not self.model:
            return False
        return (self.model, self.fingerprint) == (other.model, other.fingerprint)


@reads_store
def versions(store: Store, destination: str) -> list[Version]:
    """Lists the versions that exist in a target, newest first.

    Facts about the model come from the manifest; without one, from ML Metadata.

    Args:
      store: The root's ML Metadata.
      destination: `pusher.to`.
    """
    target = targets.of(destination)
    numbers = target.versions()
    complete = [number for number in numbers if target.serves(number)]
    listed = _with_copies(_described(store, target, numbers))
    return [
        dataclasses.replace(each, live=each.version in complete[-1:]) for each in listed
    ]


def _with_copies(listed: list[Version]) -> list[Version]:
    """Recognizes copies that rollbacks made and ML Metadata does not know.

    Args:
      listed: Versions, newest first.
    """
    first: dict[tuple[Any, ...], int] = {}
    marked = []
    for each in reversed(listed):
        model = (each.run_id, each.model, each.fingerprint)
        if each.run_id and each.fingerprint:
            origin = first.setdefault(model, each.version)
            if not each.artifact and origin != each.version:
                each = dataclasses.replace(each, rollback_of=origin)
        marked.append(each)
    return marked[::-1]


@reads_store
def in_slot(store: Store, slot: str) -> Version | None:
    """Finds the newest complete version in a canary slot, even if aborted.

    Args:
      store: The root's ML Metadata.
      slot: `pusher.canary`.
    """
    version = _newest(store, slot)
    return version and dataclasses.replace(version, slot=version.slot or CANARY)


@reads_store
def canary(store: Store, destination: str, slot: str | None) -> Version | None:
    """Finds the canary that waits to be promoted or aborted; None without one.

    Args:
      store: The root's ML Metadata.
      destination: `pusher.to`.
      slot: `pusher.canary`.
    """
    version = in_slot(store, slot) if slot else None
    if (
        version is None
        or version.aborted
        or version.has_model_of(live(store, destination))
    ):
        return None
    return version


@reads_store
def live(store: Store, destination: str) -> Version | None:
    """Finds the version that model servers load; None without one.

    Args:
      store: The root's ML Metadata.
      destination: `pusher.to`.
    """
    version = _newest(store, destination)
    return version and dataclasses.replace(version, live=True)


def _newest(store: Store, folder: str) -> Version | None:
    """The newest complete version in a folder."""
    target = targets.of(folder)
    number = target.newest()
    return None if number is None else _described(store, target, [number])[0]


def _described(
    store: Store, target: targets.Target, numbers: Sequence[int]
) -> list[Version]:
    """The versions of these numbers, newest first."""
    known = _pushed(store, target, set(numbers))
    written = reports.listed(target.uri)
    listed = []
    for number in reversed(numbers):
        report = written.get(number, "")
        version = Version(number, target.path(number), report=report)
        about = target.manifest(number)
        if number in known:
            version = _with_push(version, known[number])
        if about:
            version = _with_manifest(version, about)
        elif number in known:
            version = _with_origin(store, version)
        listed.append(version)
    return listed


def _pushed(
    store: Store, target: targets.Target, wanted: set[int]
) -> dict[int, mlmd.Artifact]:
    """The PushedModel artifacts of versions of a target, as far as there are any."""
    artifacts: dict[int, mlmd.Artifact] = {}
    pushed = newest_pushed(store)
    while wanted - artifacts.keys() and (artifact := next(pushed, None)):
        folder, _, name = properties(artifact)["pushed_destination"].rpartition("/")
        version = targets.version_of(name) or 0
        is_new = version in wanted and version not in artifacts
        if is_new and targets.of(folder).uri == target.uri:
            artifacts[version] = artifact
    return artifacts


def _with_push(version: Version, artifact: mlmd.Artifact) -> Version:
    facts = properties(artifact)
    return dataclasses.replace(
        version,
        pushed_at=artifact.create_time_since_epoch / 1000,
        rollback_of=facts.get(ROLLBACK_OF),
        promoted_from=facts.get(PROMOTED_FROM),
        slot=facts.get(SLOT, ""),
        aborted=bool(facts.get(ABORTED)),
        decided_by=facts.get(DECIDED_BY, ""),
        decided_because=facts.get(DECIDED_BECAUSE, ""),
        artifact=artifact.id,
    )


def _with_manifest(version: Version, about: Mapping[str, Any]) -> Version:
    names = ("strategy", "fingerprint", "signatures")
    return dataclasses.replace(
        version,
        pushed_at=version.pushed_at or _pushed_at(version.version),
        run_id=about.get("run_id") or None,
        spans=tuple((number, nth) for number, nth in about.get("spans", ())),
        metrics=about.get("metrics", {}),
        model=about.get("model", 0),
        **{name: about.get(name, "") for name in names},
    )


def _pushed_at(number: int) -> float | None:
    """The push time by a version's number; None if the number is no such time."""
    return float(number) if _OLDEST <= number <= time.time() else None


def _with_origin(store: Store, version: Version) -> Version:
    run = _run_of(store, version.artifact)
    return dataclasses.replace(
        version,
        run_id=run.name if run else None,
        spans=trained_on(store, version.artifact),
        metrics=_metrics(store, run) if run else {},
    )


def _run_of(store: Store, artifact: int) -> mlmd.Context | None:
    """The run that pushed a model first: of a rollback, the run of its origin."""
    executions = {event.execution_id for event in store.upstream(artifact)}
    for execution in sorted(executions, reverse=True):
        for context in store.mlmd.get_contexts_by_execution(execution):
            if context.type == RUN_CONTEXT:
                return context
    return None


def _metrics(store: Store, run: mlmd.Context) -> dict[str, float]:
    executions = store.mlmd.get_executions_by_context(run.id)
    outputs = store.outputs_of(execution.id for execution in executions)
    for artifact in (each for some in outputs.values() for each in some):
        if artifact.type == "ModelEvaluation":
            facts: dict[str, Any] = properties(artifact)
            return {k: v for k, v in facts.items() if isinstance(v, float)}
    return {}
