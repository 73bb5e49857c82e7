"""Decides whether a run is due, on which spans, and why.

A pure function of values: the time, the existing spans, and past runs. The timer is
outside: cron, a Kubernetes CronJob or `strategos schedule start` calls
`strategos retrain --if-due`.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from strategos.components.errors import required
from strategos.components.pusher import APPROVAL
from strategos.components.wording import abridged, counted, duration, listed
from strategos.pipeline.plan import compared_spans, span_preview
from strategos.pipeline.plan.span_preview import Preview

if TYPE_CHECKING:
    from strategos.pipeline.config.operating import Schedule
    from strategos.pipeline.history.attempts import Push, RunAttempt, Span
    from strategos.pipeline.history.models import Version

TRIGGERS = (
    *("first", "new_spans", "drift", "metrics"),
    *("cron", "max_age", "on_change", "retry"),
)
"""The triggers of a run; the first one that applies is the reason."""

_SHOWN = 4
_LONGEST_WAIT = 86400  # seconds between two attempts, however many failed


@dataclasses.dataclass(frozen=True)
class Facts:
    """The inputs of a decision, besides the schedule.

    Attributes:
      now: Unix seconds.
      spans: The (number, version) of the spans that the settings select.
      data: Fingerprint of the files of these spans.
      settings: `caching.settings_key`.
      push: The last push; None without one, or if no pushed version is left.
      attempts: Runs, newest first, back to the newest one that made a model.
      pushes: Whether the pipeline pushes models.
      left_out: The spans that a gate found at fault, with the run that it stopped; they
        are not among `spans`.
      previews: Measurements of spans newer than the spans of the model in production.
      checked: Unix seconds of the first check since the last run, or since the clock
        went back; None if unknown.
      canary: The version that waits for a verdict; None without one.
    """

    now: float
    spans: Sequence[Span]
    data: str = ""
    settings: str = ""
    push: Push | None = None
    attempts: Sequence[RunAttempt] = ()
    pushes: bool = True
    left_out: Mapping[int, str] = dataclasses.field(default_factory=dict)
    previews: Mapping[int, Preview] = dataclasses.field(default_factory=dict)
    checked: float | None = None
    canary: Version | None = None


@dataclasses.dataclass(frozen=True)
class RetrainingDecision:
    """Whether a run is due.

    Attributes:
      due: Whether to run.
      reason: Why, or why not: one sentence.
      trigger: The trigger that made the run due, of `TRIGGERS`; "" if none is due.
      spans: The (number, version) of the spans to run on, ascending.
      new: The spans among them that the newest run with a verdict has not read, or in
        which its gate found a fault.
      next: Unix seconds at which a run becomes due by the clock alone; None for never.
      left_out: Numbers of spans that are not read, because a gate found them at fault.
    """

    due: bool
    reason: str
    trigger: str
    spans: tuple[Span, ...]
    new: tuple[Span, ...] = ()
    next: float | None = None
    left_out: tuple[int, ...] = ()

    @property
    def new_numbers(self) -> frozenset[int]:
        """Numbers of the spans in `new`."""
        return frozenset(number for number, _ in self.new)

    @property
    def anew(self) -> bool:
        """Whether to train although nothing has changed since the last model."""
        return self.trigger == "max_age" and not self.new


def decide(facts: Facts, schedule: Schedule) -> RetrainingDecision:
    """Decides whether a run is due.

    A candidate that a gate rejected is not tried again on the same data with the same
    settings. After a failure, the next attempt waits, twice as long each time.

    Args:
      facts: The inputs of the decision.
      schedule: When a run is due.
    """
    return _Case(facts, schedule).decision()


@dataclasses.dataclass(frozen=True)
class _Model:
    """The last model that may serve."""

    name: str
    made_at: float
    spans: tuple[Span, ...]


class _Case:
    """One decision, with the values derived from the facts and the schedule."""

    def __init__(self, facts: Facts, schedule: Schedule):
        self._facts, self._schedule = facts, schedule
        self._spans = tuple(sorted(facts.spans, key=_order))
        self._model = _model(facts)
        self._last = next(iter(facts.attempts), None)
        concluded = (a for a in facts.attempts if a.made or a.rejected)
        self._concluded = next(concluded, None)
        self._seen = dict(self._tried())
        self._new = tuple(
            s for s in self._spans if compared_spans.is_new(*s, self._seen)
        )

    def decision(self) -> RetrainingDecision:
        """Checks the reasons against a run first, then the triggers."""
        held = (
            self._running()
            or self._on_trial()
            or self._backing_off()
            or self._rejected()
        )
        if held:
            return self._decided("", f"Not due: {held}.")
        for trigger in TRIGGERS:
            reason = getattr(self, f"_{trigger}")()
            if reason:
                return self._decided(trigger, f"Due: {reason}.")
        return self._decided("", f"Not due: {self._waiting()}.")

    def _decided(self, trigger: str, reason: str) -> RetrainingDecision:
        times = [self._retry_at(), self._tick(), self._too_old_at()]
        coming = [time for time in times if time is not None and time > self._facts.now]
        soonest = None if trigger else min(coming, default=None)
        left_out = tuple(sorted(self._facts.left_out))
        if left_out:
            reason = f"{reason[:-1]}; {self._left_out()}."
        due = bool(trigger)
        return RetrainingDecision(
            due, reason, trigger, self._spans, self._new, soonest, left_out
        )

    def _left_out(self) -> str:
        stopped = self._facts.left_out
        names = [f"span {number} (run {stopped[number]})" for number in sorted(stopped)]
        return f"left out, because a gate found it at fault: {abridged(names, _SHOWN)}"

    def _tried(self) -> tuple[Span, ...]:
        """The spans of the newest run that came to a verdict."""
        last = self._concluded
        if last is not None and last.spans is not None:
            return tuple(span for span in last.spans if span[0] not in last.at_fault)
        return self._model.spans if self._model else ()

    # Reasons against a run.

    def _running(self) -> str:
        last = self._last
        if last is None or last.outcome != "running":
            return ""
        return f"run {last.run_id} has been running for {self._since(last.started)}"

    def _on_trial(self) -> str:
        """A run would replace the canary, before the new data could judge it."""
        if self._facts.canary is None:
            return ""
        waiting = self._facts.canary
        since = self._since(waiting.pushed_at or float(waiting.version))
        if waiting.slot == APPROVAL:
            return f"version {waiting.version}, pushed {since} ago, awaits approval"
        pushed = f"canary {waiting.version}, pushed {since} ago"
        return f"{pushed}, is neither promoted nor aborted"

    def _backing_off(self) -> str:
        until = self._retry_at()
        if until is None or until <= self._facts.now:
            return ""
        wait = duration(until - self._facts.now)
        return f"{self._failures_described()}; the next attempt may start in {wait}"

    def _rejected(self) -> str:
        last, facts = self._concluded, self._facts
        if last is None or not last.rejected or self._new:
            return ""
        if (last.data, last.settings) != (facts.data, facts.settings):
            return ""
        return (
            f"run {last.run_id} was {last.outcome} on the same data with the same "
            "settings; it waits for new data or a change"
        )

    # Triggers.

    def _first(self) -> str:
        if self._model is not None:
            return ""
        known = counted(len(self._spans), "span")
        if self._facts.pushes and any(each.made for each in self._facts.attempts):
            return f"no model is in production ({known} to learn from)"
        made = "pushed" if self._facts.pushes else "trained"
        return f"no model has been {made} yet ({known} to learn from)"

    def _new_spans(self) -> str:
        wanted = self._schedule.wanted_spans
        last = self._concluded
        if wanted is not None and last and last.rejected and self._files_changed:
            return f"files of its spans have changed since {self._reference()}"
        if wanted is None or len(self._new) < wanted:
            return ""
        return f"{_describe(self._new, self._seen)} came after {self._reference()}"

    def _drift(self) -> str:
        return self._first_of(span_preview.drift)

    def _metrics(self) -> str:
        return self._first_of(span_preview.fall)

    def _first_of(self, describe: Callable[[int, Preview, Schedule], str]) -> str:
        """The first description that is not "", in the order of the new spans."""
        known = self._facts.previews
        numbers = [number for number, _ in self._new if number in known]
        descriptions = (describe(each, known[each], self._schedule) for each in numbers)
        return next(filter(None, descriptions), "")

    def _cron(self) -> str:
        tick = self._tick()
        if tick is None or tick > self._facts.now:
            return ""
        zone = ZoneInfo(self._schedule.timezone)
        time = f"{datetime.datetime.fromtimestamp(tick, zone):%Y-%m-%d %H:%M %Z}"
        return f"{time} of `schedule.cron` ({self._schedule.cron}) has come"

    def _max_age(self) -> str:
        until = self._too_old_at()
        if until is None or until > self._facts.now:
            return ""
        limit = self._schedule.max_age
        return f"{self._model_aged()}, is older than `schedule.max_age` ({limit})"

    def _on_change(self) -> str:
        last = self._concluded
        if not self._schedule.on_change or last is None or last.settings is None:
            return ""
        if last.settings == self._facts.settings:
            return ""
        return f"settings or code changed after run {last.run_id}"

    def _retry(self) -> str:
        return self._failures_described() if self._retry_at() is not None else ""

    @property
    def _files_changed(self) -> bool:
        """Whether files of the spans of the last verdict were replaced in place."""
        last = self._concluded
        if last is None or last.data is None or last.spans is None:
            return False
        same = set(last.spans) == set(self._spans)
        return same and last.data != self._facts.data

    # Times.

    def _tick(self) -> float | None:
        """The first time of `schedule.cron` after the start of the last run."""
        last = self._last.started if self._last else self._facts.now
        return self._schedule.tick_after(self._past(last))

    def _too_old_at(self) -> float | None:
        limit = self._schedule.max_age_seconds
        if limit is None or self._model is None:
            return None
        return self._past(self._model.made_at) + limit

    def _retry_at(self) -> float | None:
        """The time of the next attempt after a failure; None if the last succeeded."""
        failures = self._failures
        if not failures:
            return None
        first = self._schedule.retry_after_seconds
        wait = min(first * 2 ** min(len(failures) - 1, 20), max(first, _LONGEST_WAIT))
        return self._past(failures[0].ended) + wait

    def _past(self, then: float) -> float:
        """A recorded time, or a substitute if the clock has gone back since then.

        A small step is waited out; a large one would stop the schedule for as long.
        """
        now, checked = self._facts.now, self._facts.checked
        if then - now > _LONGEST_WAIT and checked is not None:
            then = checked
        return min(then, now)

    # Words.

    @property
    def _failures(self) -> list[RunAttempt]:
        """The failed runs since the last one that came to a verdict, newest first."""
        newest_first = self._facts.attempts
        return [*itertools.takewhile(lambda attempt: attempt.failed, newest_first)]

    def _failures_described(self) -> str:
        last, *others = self._failures
        how = "failed" if last.outcome == "failed" else "was interrupted"
        times = f", as did {counted(len(others), 'run')} before it" if others else ""
        return f"run {last.run_id} {how} {self._since(last.ended)} ago{times}"

    def _reference(self) -> str:
        """The run or model that new spans came after, for messages."""
        last = self._concluded
        if last is not None and last.rejected:
            return f"run {last.run_id}, which was {last.outcome}"
        return self._model_aged()

    def _model_aged(self) -> str:
        model = required(self._model)  # without one, the trigger `first` applies
        return f"{model.name} {self._since(model.made_at)} ago"

    def _waiting(self) -> str:
        """Why no trigger applies, e.g. "…, was trained on all spans"."""
        model, last = required(self._model), self._concluded
        if self._new:
            unseen = counted(len(self._new), "span")
            wanted = f"`schedule.new_spans` is {self._schedule.new_spans}"
            known = f"{unseen} came after it, but {wanted}"
        elif last and any(
            compared_spans.is_new(*s, dict(model.spans)) for s in self._spans
        ):
            known = f"no span came after run {last.run_id}, which was {last.outcome}"
        elif self._files_changed:
            known = "was trained on earlier files of these spans"
        else:
            known = "was trained on all spans"
        text = f"{self._model_aged()}, {known}"
        too_old_at = self._too_old_at()
        if too_old_at is not None:
            wait = duration(too_old_at - self._facts.now)
            text += f"; `schedule.max_age` is reached in {wait}"
        tick = self._tick()
        if tick is not None:
            wait = duration(tick - self._facts.now)
            text += f"; the next time of `schedule.cron` is in {wait}"
        return text

    def _since(self, then: float) -> str:
        return duration(max(0.0, self._facts.now - then))


def _model(facts: Facts) -> _Model | None:
    if facts.push is not None:
        push = facts.push
        return _Model(f"model {push.version}, pushed", push.pushed_at, push.spans)
    run = next((each for each in facts.attempts if each.made), None)
    if facts.pushes or run is None:
        return None
    return _Model(f"the model of run {run.run_id}, made", run.ended, run.spans or ())


def _describe(new: Sequence[Span], seen: dict[int, int | None]) -> str:
    names = []
    for number, version in new:
        name = f"span {number}"
        if number in seen:
            name = f"version {version} of {name} (it saw {seen[number]})"
        elif version is not None:
            name += f" (version {version})"
        names.append(name)
    return listed(names) if len(names) <= _SHOWN else abridged(names, _SHOWN)


def _order(span: Span) -> tuple[int, int]:
    return span[0], span[1] or 0
