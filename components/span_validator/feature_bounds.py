"""Checks the features of a span by bounds that the settings state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components.span_validator import measure
from strategos.components.span_validator.gate import Check, Compared, Gate

_NAME = "features"


class Features(Gate):
    """Bounds on means, ranges, and shares of values, on any span, also a first one."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`: by feature, `{"mean": {"at_least": 1, "at_most": 2}, …}`."""
        missing = measure.missing(span.found)
        summaries, texts = measure.summaries(span.found), measure.values(span.found)
        for name, bounds in sorted((settings or {}).items()):
            if name not in missing:
                yield Check(_NAME, span.number, False, name, note="no such column")
                continue
            feature = _Feature(span.number, name)
            if bounds["missing"] is not None:
                limits, note = {"at_most": bounds["missing"]}, "share without a value"
                yield feature.check(missing[name], limits, note)
            if bounds["mean"] or bounds["values"]:
                yield from _of_numbers(feature, summaries.get(name), bounds)
            if bounds["shares"]:
                yield from _of_text(feature, texts.get(name), bounds["shares"])


@dataclasses.dataclass(frozen=True)
class _Feature:
    span: int
    name: str

    def check(
        self, value: float, limits: Mapping[str, float | None], note: str
    ) -> Check:
        """The bound that fails; else the nearest one.

        Args:
          value: The figure.
          limits: `at_least` and `at_most`; None for no bound. At least one is set.
          note: Name of the figure.
        """
        room = {
            bound: value - limit if bound == "at_least" else limit - value
            for bound, limit in limits.items()
            if limit is not None
        }
        bound = min(room, key=room.__getitem__)
        figure = value, bound, limits[bound], note
        return Check(_NAME, self.span, room[bound] >= 0, self.name, *figure)

    def failed(self, note: str) -> Check:
        """A check without a figure."""
        return Check(_NAME, self.span, False, self.name, note=note)


def _of_numbers(
    feature: _Feature, summary: measure.Summary | None, bounds: Mapping[str, Any]
) -> Iterator[Check]:
    if summary is None:
        yield feature.failed("no numbers, which `mean` and `values` bound")
        return
    if bounds["mean"]:
        yield feature.check(summary.mean, bounds["mean"], "mean")
    values = bounds["values"] or {}
    if values.get("at_least") is not None:
        limits = {"at_least": values["at_least"]}
        yield feature.check(summary.least, limits, "smallest number")
    if values.get("at_most") is not None:
        limits = {"at_most": values["at_most"]}
        yield feature.check(summary.most, limits, "largest number")


def _of_text(
    feature: _Feature, texts: measure.Values | None, shares: Mapping[str, Any]
) -> Iterator[Check]:
    if texts is None:
        yield feature.failed("no texts, whose shares `shares` bounds")
        return
    for value, limits in sorted(shares.items()):
        share = texts.counts.get(value, 0) / texts.total
        yield feature.check(share, limits, f"share of {value!r}")
