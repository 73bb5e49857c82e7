"""The model on trial: it is judged and promoted, or aborted.

A promotion writes the version to `pusher.to`, then its record, then empties the slot.
An abort marks the record first. So the decision can be read from these records at every
moment, and `settle` completes it if a process was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strategos.components import worker_process
from strategos.components.data_files.spans import Span, describe
from strategos.components.errors import (
    BadInputError,
    GateStoppedError,
    Place,
    UserError,
    required,
)
from strategos.components.evaluation.outcome import summary
from strategos.components.push_targets import targets
from strategos.components.pusher import ABORTED, SLOT
from strategos.components.span_validator import FOLDER_VARIABLE
from strategos.components.wording import first
from strategos.pipeline.history import models
from strategos.pipeline.history.models import Version
from strategos.pipeline.history.store import Store
from strategos.pipeline.plan import compared_spans
from strategos.pipeline.root import RUN_CONTEXT
from strategos.pipeline.root.state import state_folder
from strategos.pipeline.run.versions import pushes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ml_metadata.proto import metadata_store_pb2

    from strategos.components.data_files.listing import Listing
    from strategos.pipeline.config.sections import Config
_JUDGE = "strategos.components.span_validator.judging"
_QUIET = {"PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}  # of imports
_ABORT = "strategos.Abort"
_MADE = ("blessed", "finished")
_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The evaluation that promoted a canary.

    Attributes:
      span: The number of the span that judged the canary; None without a judgment.
      metrics: Metrics of the canary on the span's rows; None where undefined.
      live: Metrics of the model in production; None if there was none.
      reason: The outcome in a line, as in `summary.json`.
    """

    span: int | None
    metrics: dict[str, float | None]
    live: dict[str, float | None] | None
    reason: str


_UNJUDGED = Verdict(None, {}, None, "not judged")


def promote(
    config: Config,
    store: Store,
    data: Listing | None,
    decided: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Version, int, Verdict]:
    """Makes the canary live: pushes a copy of it to `pusher.to`, and records that.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      data: The files; their newest span judges the canary by the bounds of the
        Evaluator. None promotes it without a judgment.
      decided: Who approved it and why, as properties of its record; none without.

    Returns:
      The canary, the number of the version that is live, and the verdict.

    Raises:
      BadInputError: No canary waits, or nothing can judge it; `gates` would stop the
        span that should.
      GateStoppedError: A bound does not hold; the canary stays.
      UserError: The canary does not load, a newer version appeared in `pusher.to`, or
        the copy cannot be written.
    """
    canary = waiting(config, store, "canary promote")
    pusher = required(config.pusher)
    target = pusher.target
    live = target.newest()
    if data is None:
        verdict = _UNJUDGED
        with targets.local(canary.path) as folder:
            pushes.check_that_it_loads(canary, folder)
    else:
        verdict = _judged(config, canary, data, target.path(live) if live else None)
    pushes.mark(store.mlmd, canary, decided)
    pushed = target.push(canary.path, pusher.keep, after=live or 0)
    _record_promotion(config, store, canary, pushed, verdict.reason, decided)
    _empty(config, canary.version)
    return canary, pushed, verdict


def abort(
    config: Config, store: Store, decided: Mapping[str, str] = MappingProxyType({})
) -> Version:
    """Withdraws the canary; the runs that pushed it count as not blessed.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      decided: Who vetoed it and why, as for `promote`.

    Returns:
      The canary.

    Raises:
      BadInputError: No canary waits.
    """
    canary = waiting(config, store, "canary abort")
    aborted: dict[str, int | str] = {ABORTED: canary.model or -1, **decided}
    if canary.artifact:
        pushes.mark(store.mlmd, canary, aborted)
    else:
        aborted[SLOT] = canary.slot
        pushes.record(store.mlmd, config, canary, canary.path, _ABORT, aborted)
    who, why = (decided.get(x, "") for x in (models.DECIDED_BY, models.DECIDED_BECAUSE))
    canary = dataclasses.replace(canary, decided_by=who, decided_because=why)
    _finish_abort(config, store, canary)
    return canary


def settle(config: Config, store: Store) -> None:
    """Completes a promotion or an abort that was killed half-way, if there is one.

    Args:
      config: The effective settings.
      store: The root's ML Metadata.
    """
    slot = config.pusher.canary if config.pusher else None
    version = models.in_slot(store, slot) if slot else None
    if version is None:
        return
    if version.aborted:
        _finish_abort(config, store, version)
        return
    live = models.live(store, required(config.pusher).to)
    if live and version.has_model_of(live):
        if not live.artifact:
            _record_promotion(config, store, version, live.version, "", {})
        _empty(config, version.version)


def waiting(config: Config, store: Store, command: str) -> Version:
    """Finds the version in the slot; completes a promotion or abort that was killed.

    Args:
      config: The effective settings, with `pusher`.
      store: The root's ML Metadata.
      command: The command that asks, for messages, such as `canary promote`.

    Raises:
      BadInputError: No version waits.
    """
    settle(config, store)
    pusher = required(config.pusher)
    slot = pusher.canary
    if slot is None:
        raise config.problem(
            "pusher.canary",
            "is not set, so no model is on trial",
            remedy="Set it to a folder, and run the pipeline.",
        )
    version = models.canary(store, pusher.to, slot)
    if version is None:
        what = "version" if pusher.approval else "canary"
        raise BadInputError(f"no {what} waits in {slot}", key=f"strategos {command}")
    return version


def _judged(
    config: Config, canary: Version, data: Listing, live: str | None
) -> Verdict:
    """Judges the canary on the newest span, which it must not have seen."""
    span = _unseen(config, canary, data)
    before = [each for each in data.found if each.number < span.number]
    with tempfile.TemporaryDirectory() as folder:
        request = _request(config, span, before[-compared_spans.USUAL_SPANS :]) | {
            "folder": folder,
            "canary": canary.path,
            "live": live,
        }
        try:
            env = {**worker_process.TENSORFLOW, **_QUIET}
            env |= {FOLDER_VARIABLE: f"{state_folder(config.run.root)}/span-statistics"}
            result = worker_process.run(_JUDGE, request, name="judge", env=env)
        except UserError as error:
            raise error.but(place=Place(f"span {span.number}")) from error
    if "at_fault" in result:
        lines = first(result["at_fault"], _SHOWN)
        raise BadInputError(
            "\n  ".join([f"span {span.number} cannot judge the canary:", *lines]),
            key="gates",
            remedy="Correct the data of the span, or wait for the next one. "
            "--unjudged promotes the canary without.",
        )
    if failed := summary.faults(result):
        lines = [f"span {span.number}: {line}" for line in first(failed, _SHOWN)]
        heading = f"canary {canary.version} is not promoted:"
        remedy = "Withdraw it: strategos canary abort; or wait for the next span."
        if result["incomparable"]:
            lines.append(result["incomparable"])
            remedy = "--unjudged promotes it without. Or w" + remedy[1:]
        raise GateStoppedError("\n  ".join([heading, *lines]), remedy=remedy)
    facts = result["overall"], result["baseline"], result["reason"]
    return Verdict(span.number, *facts)


def _unseen(config: Config, canary: Version, data: Listing) -> Span:
    unjudged = "--unjudged promotes it without."
    if config.evaluator is None or not config.evaluator.bounds:
        raise config.problem(
            "evaluator.bounds",
            "is missing, and nothing else judges a canary",
            remedy=f"Add it. {unjudged}",
        )
    span = data.found[-1]
    if (span.number, span.version) in canary.spans:
        raise BadInputError(
            f"canary {canary.version} was trained or evaluated on span {span.number}, "
            f"the newest one; there are: {describe(data.found)}",
            key="data.examples",
            place=config.where("data.examples"),
            remedy=f"Wait for the next span, which judges it. {unjudged}",
        )
    return span


def _request(config: Config, span: Span, usual: Sequence[Span]) -> dict[str, Any]:
    evaluator = required(config.evaluator)
    gates = config.gates and {**config.gates.without_paths(), "skew": None}
    return {
        "pattern": config.data.examples,
        "schema": config.schema_.file or "",
        "null_values": config.data.null_values,
        "reading": config.data.reading.to_json(),
        "span": [span.number, span.version],
        "usual": [[each.number, each.version] for each in usual],
        "gates": gates and {**gates, "on_anomaly": config.schema_.on_anomaly},
        "others": config.gates.other_data if config.gates else {},
        "label": config.label,
        "weight": config.weight,
        "evaluator": evaluator.model_dump(mode="json", exclude_none=True),
    }


def _record_promotion(
    config: Config,
    store: Store,
    canary: Version,
    pushed: int,
    verdict: str,
    decided: Mapping[str, str],
) -> None:
    path = required(config.pusher).target.path(pushed)
    pushes.copy_report(canary, path)
    facts: dict[str, int | str] = {
        models.PROMOTED_FROM: canary.version,
        "verdict": verdict,
        **decided,
    }
    pushes.record(store.mlmd, config, canary, path, models.PROMOTION, facts)


def _finish_abort(config: Config, store: Store, canary: Version) -> None:
    reason = f"canary {canary.version} was aborted"
    if canary.decided_by:
        because = f": {canary.decided_because}" * bool(canary.decided_because)
        reason = f"{canary.decided_by} vetoed version {canary.version}{because}"
    error = UserError(reason)
    for context in _runs_of(store, canary):
        facts = context.custom_properties
        if facts["outcome"].string_value in _MADE:
            facts["outcome"].string_value = "not blessed"
            facts["error"].string_value = json.dumps(error.to_json())
            store.mlmd.put_contexts([context])
    _empty(config, canary.version)


def _runs_of(store: Store, canary: Version) -> list[metadata_store_pb2.Context]:
    """The runs that pushed a canary, or took the push from the cache."""
    runs = {}
    if canary.artifact:
        events = store.mlmd.get_events_by_artifact_ids([canary.artifact])
        for execution in {event.execution_id for event in events}:
            for context in store.mlmd.get_contexts_by_execution(execution):
                if context.type == RUN_CONTEXT:
                    runs[context.id] = context
    return list(runs.values())


def _empty(config: Config, version: int) -> None:
    """Removes a version from the slot, unless it is gone already."""
    with contextlib.suppress(FileNotFoundError):
        required(required(config.pusher).slot).remove(version)
