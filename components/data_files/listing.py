"""The spans that a run reads: complete ones, in the window that `data.spans` selects.

This module needs only the standard library, unless data are in an object store.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from strategos.components.data_files.spans import (
    NoFilesError,
    Span,
    describe,
    find_editions,
)
from strategos.components.errors import BadInputError
from strategos.components.files import storage
from strategos.components.wording import counted


class NoneCompleteError(BadInputError):
    """Spans exist, but none is complete yet."""


@dataclasses.dataclass(frozen=True)
class Completeness:
    """Conditions for a span to be complete; all that are set must hold.

    Attributes:
      marker: Pattern of the file that marks a span as complete, with the placeholders
        of the spans, e.g. `/data/{DATE}/_SUCCESS`. None: no marker is needed.
      quiet: Least seconds since the last change of the span's files; 0: no condition.
    """

    marker: str | None = None
    quiet: int = 0

    def of(self, spans: Sequence[Span], now: float) -> list[Span]:
        """Returns the spans that are complete, in the same order.

        Args:
          spans: Every version of every span.
          now: Unix seconds.

        Raises:
          BadInputError: A marker exists for a span without files.
        """
        if self.marker is not None:
            markers = _find_markers(self.marker)
            _reject_markers_without_data(markers, spans)
            marked = {_edition(marker) for marker in markers}
            spans = [each for each in spans if _editions_of(each) & marked]
        if not self.quiet:  # whatever the clock of the producer says
            return list(spans)
        return [each for each in spans if now - _changed(each) >= self.quiet]


class TooFewSpansError(BadInputError):
    """The selection asks for more spans than exist, e.g. `latest 6` of 4."""


class Listing:
    """The files of a run's data, listed at the first use only.

    A listing without any file is not kept: the next use lists again.
    """

    def __init__(
        self,
        pattern: str,
        which: str = "all",
        complete: Completeness | None = None,
        until: int | None = None,
        held_out: int = 0,
        left_out: frozenset[int] = frozenset(),
    ):
        """Stores the arguments; the first use of an attribute lists the files.

        Args:
          pattern: A glob with placeholders, see `spans`.
          which: The spans to read, see `select_spans`; by default all.
          complete: Conditions for a complete span; by default, every span is complete.
          until: The newest span to consider, as if later ones had not arrived.
          held_out: Number of the newest selected spans that are not for training.
          left_out: Numbers of spans to ignore, as if they did not exist.
        """
        self._pattern, self._which = pattern, which
        self._complete, self._until = complete, until
        self._held_out, self._left_out = held_out, left_out

    def as_of(self, span: int) -> Listing:
        """This listing, as if no span after `span` had arrived."""
        return self._but(until=span)

    def without(self, spans: Iterable[int]) -> Listing:
        """A listing that ignores these spans."""
        return self._but(left_out=frozenset(spans))

    def _but(self, **changes: Any) -> Listing:
        mine = {
            "until": self._until,
            "held_out": self._held_out,
            "left_out": self._left_out,
        }
        return Listing(self._pattern, self._which, self._complete, **mine | changes)

    def forget(self) -> None:
        """Lists the files again at the next use: there are new ones."""
        for name in ("_editions", "found", "chosen"):
            self.__dict__.pop(name, None)

    @functools.cached_property
    def _editions(self) -> tuple[list[Span], list[Span]]:
        """Every version of every span, and the complete ones among them."""
        all_spans = complete = find_editions(self._pattern)
        if self._complete is not None:
            complete = self._complete.of(all_spans, time.time())
        return self._considered(all_spans), self._considered(complete)

    def _considered(self, spans: list[Span]) -> list[Span]:
        until = self._until
        return [
            span
            for span in spans
            if (until is None or span.number <= until)
            and span.number not in self._left_out
        ]

    @functools.cached_property
    def found(self) -> list[Span]:
        """The newest complete version of each span, ascending by number.

        Raises:
          NoFilesError: The pattern matches no file.
          NoneCompleteError: No span is complete yet.
          BadInputError: The pattern is malformed.
        """
        all_spans, complete = self._editions
        if not complete:
            raise NoneCompleteError(
                f"no span of {self._pattern} is complete yet; there are: "
                f"{describe(all_spans)}",
                key="data.complete",
            )
        return _newest(complete)

    @property
    def any_complete(self) -> bool:
        """Whether a span is complete; raises as `found`, but for NoneCompleteError."""
        return bool(self._editions[1])

    @property
    def incomplete(self) -> list[Span]:
        """Spans with an incomplete newest version, ascending by number."""
        all_spans, complete = self._editions
        return [span for span in _newest(all_spans) if span not in complete]

    @functools.cached_property
    def chosen(self) -> list[Span]:
        """The spans to read; raises as `found` and `select_spans`.

        Raises:
          TooFewSpansError: All selected spans are held out.
        """
        chosen = select_spans(self.found, self._which)
        if self._held_out >= len(chosen):
            raise TooFewSpansError(
                f"none is left for training; the run has: {describe(chosen)}",
                key="data.split.spans",
                received=f"{counted(self._held_out, 'span')} to hold out",
                remedy="Select more spans by `data.spans`, or wait for the next one.",
            )
        return chosen

    @property
    def is_empty(self) -> bool:
        """Whether the pattern matches no file (yet)."""
        try:
            return not self._editions[0]
        except NoFilesError:
            return True


def select_spans(spans: Sequence[Span], which: str) -> list[Span]:
    """Selects spans by the setting `data.spans`.

    Args:
      spans: All spans, ascending by number.
      which: `all`; `latest`, the newest span; `latest 6`, the six newest; a number
        (`3`); or a range (`1..6` or `3..`): the spans that exist between its ends, both
        included.

    Raises:
      BadInputError: `which` has another form, selects no span, or more spans than
        exist.
    """
    if which == "all":
        return list(spans)
    window = re.fullmatch(r"latest(?: (\d+))?", which)
    if window:
        return _window(spans, int(window[1] or 1))
    form = re.fullmatch(r"(\d+)(\.\.)?(\d+)?", which)
    if not form or (form[3] and not form[2]):
        raise BadInputError(
            key="data.spans",
            received=repr(which),
            expected="`all`, `latest`, a number, a window such as `latest 6`, or a "
            "range such as `1..6` or `3..`",
        )
    first, last = int(form[1]), int(form[3] or form[1])
    if form[2] and not form[3]:
        last = max((span.number for span in spans), default=first)
    if form[3] and last < first:
        raise BadInputError(
            "the range ends before it starts",
            key="data.spans",
            received=repr(which),
            remedy=f"Write `{last}..{first}`.",
        )
    selected = [span for span in spans if first <= span.number <= last]
    if not selected:
        raise BadInputError(
            f"no span is in {which!r}; there are: {describe(spans)}",
            key="data.spans",
            remedy="Choose among these.",
        )
    return selected


def _window(spans: Sequence[Span], size: int) -> list[Span]:
    if size > len(spans):
        raise TooFewSpansError(
            f"there are {len(spans)} spans: {describe(spans)}",
            key="data.spans",
            received=f"latest {size}",
            remedy="Choose a smaller window, or wait for more spans.",
        )
    return list(spans[len(spans) - size :])


def _newest(editions: Iterable[Span]) -> list[Span]:
    newest = {span.number: span for span in editions}  # ascending in version
    return list(newest.values())


def _find_markers(pattern: str) -> list[Span]:
    try:
        return find_editions(pattern)
    except NoFilesError:
        return []


def _edition(span: Span) -> tuple[int, int | None]:
    return span.number, span.version


def _editions_of(span: Span) -> set[tuple[int, int | None]]:
    """The editions of markers of a span: of its version, or of all versions."""
    return {_edition(span), (span.number, None)}


def _reject_markers_without_data(
    markers: Iterable[Span], spans: Sequence[Span]
) -> None:
    known = set().union(*map(_editions_of, spans))
    for marker in markers:
        if _edition(marker) not in known:
            raise BadInputError(
                f"{marker.files[0]} marks span {describe([marker])} as complete, but "
                "`data.examples` matches no file of that span",
                key="data.complete.marker",
                remedy="Restore the files of the span, or remove the marker.",
            )


def _changed(span: Span) -> float:
    """Unix seconds of the last change of a span's files; now, if a file is missing."""
    try:
        return max(each.changed for each in storage.statuses(span.files)) / 1e9
    except FileNotFoundError:
        return time.time()
