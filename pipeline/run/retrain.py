"""Gathers the facts for a decision to retrain: spans, past runs and measurements."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strategos.components.data_files import spans
from strategos.components.data_files.listing import (
    Listing,
    NoneCompleteError,
    TooFewSpansError,
)
from strategos.components.data_files.spans import Span
from strategos.components.errors import required
from strategos.pipeline.config.operating import Schedule
from strategos.pipeline.history import decisions
from strategos.pipeline.plan import caching, retraining
from strategos.pipeline.plan.retraining import RetrainingDecision
from strategos.pipeline.plan.reuse import user_code
from strategos.pipeline.plan.span_preview import Preview
from strategos.pipeline.root.state import file_hashes
from strategos.pipeline.run import span_measurements

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.attempts import Push
    from strategos.pipeline.history.models import Version
    from strategos.pipeline.history.store import Store


def accepted(config: Config, data: Listing) -> tuple[Listing, dict[int, str]]:
    """Leaves out the spans that a gate found at fault, until their files change.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.

    Returns:
      The data without these spans, and the stopped run by the number of each span.
    """
    if not config.gates or data.is_empty or not data.any_complete:
        return data, {}
    rejected = rejected_spans(config)
    memo = file_hashes(config.run.root)
    left_out = {
        span.number: rejected[span.number][1]
        for span in data.found
        if span.number in rejected
        and spans.fingerprint([span], memo) == rejected[span.number][0]
    }
    return data.without(left_out), left_out


def rejected_spans(config: Config) -> dict[int, tuple[str, str]]:
    """The spans that a gate found at fault, as of `attempts.rejected_spans`.

    Args:
      config: The effective settings.
    """
    from strategos.pipeline.history import attempts
    from strategos.pipeline.history.store import NoRunsError, Store

    try:
        store = Store.of(config)
    except NoRunsError:
        return {}
    return attempts.rejected_spans(store, config.name, caching.target_key(config))


def decide(
    config: Config,
    data: Listing,
    left_out: Mapping[int, str] = MappingProxyType({}),
) -> RetrainingDecision:
    """Decides whether a run is due now.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      left_out: As `accepted` returns them.

    Raises:
      UserError: ML Metadata cannot be read.
    """
    if config.data.maker and data.is_empty:
        reason = f"Due: no data exist yet; `{config.data.maker}` makes them."
        return RetrainingDecision(True, reason, "first", ())
    try:
        chosen = data.chosen
    except NoneCompleteError as error:
        return RetrainingDecision(False, f"Not due: {error.message}.", "", ())
    except TooFewSpansError as error:
        if not left_out:
            raise
        reason = f"Not due: {error.headline}; a gate found {sorted(left_out)} at fault."
        return RetrainingDecision(
            False, reason, "", (), left_out=tuple(sorted(left_out))
        )
    now = time.time()
    facts = retraining.Facts(
        now=now,
        spans=[(span.number, span.version) for span in chosen],
        data=spans.fingerprint(chosen, file_hashes(config.run.root)),
        pushes=config.pusher is not None,
        left_out=left_out,
        checked=decisions.first_check(
            config.run.root, config.name, now, caching.target_key(config)
        ),
        **_history(config, data.found),
    )
    return retraining.decide(facts, config.schedule or Schedule())


def to_json(decision: RetrainingDecision) -> dict[str, Any]:
    """Converts a decision to JSON-able values."""
    return dataclasses.asdict(decision)


def _history(config: Config, spans: Sequence[Span]) -> dict[str, Any]:
    """The attempts, the last push, and previews of spans; none if nothing has run."""
    from strategos.pipeline.history import attempts
    from strategos.pipeline.history.store import NoRunsError, Store

    try:
        store = Store.of(config)
    except NoRunsError:
        store = None
    code = user_code.UserCode.of(config, store and store.mlmd)
    settings = {"settings": caching.settings_key(config, code.fingerprints)}
    if store is None:
        return settings
    push, target = None, caching.target_key(config)
    if config.pusher and config.pusher.target.newest() is not None:
        push = attempts.last_push(store, config.name, config.pusher.to, target)
    return {
        **settings,
        "attempts": attempts.attempts(store, config.name, target),
        "push": push,
        "previews": _previews(config, store, push, spans),
        "canary": _canary(config, store),
    }


def _canary(config: Config, store: Store) -> Version | None:
    """The version that waits in the canary slot."""
    from strategos.pipeline.history import models

    pusher = config.pusher
    return models.canary(store, pusher.to, pusher.canary) if pusher else None


def _previews(
    config: Config, store: Store, push: Push | None, spans: Sequence[Span]
) -> dict[int, Preview]:
    """Measurements of new spans, if the schedule asks for any."""
    from strategos.pipeline.history import models

    schedule = config.schedule
    if push is None or not schedule or not (schedule.drift or schedule.metrics):
        return {}
    versions = models.versions(store, required(config.pusher).to)
    live = next((each for each in versions if each.live), None)
    if live is None:
        return {}
    seen = [number for number, _ in live.spans or push.spans]
    model = span_measurements.ModelInProduction(live.path, seen, live.metrics)
    return span_measurements.measure(config, spans, model)
