"""Compares the statistics of a span with the spans before it.

Distances are TFDV's: L-infinity between the shares of a text's values, and the
Jensen-Shannon divergence (base 2) between the histograms of numbers; both 0 to 1.
Values of a text that the other data lack count together, as one value with a share of 0
there. Their share is reduced by the share expected by chance (Good and Turing: the
share of rows with a value that occurs once in the other data).
"""

from __future__ import annotations

import statistics as averages
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from strategos.components import changes, events
from strategos.components.span_validator import by_chance, measure
from strategos.components.span_validator.gate import GATES, Check, Compared, Gate
from strategos.components.span_validator.measure import Statistics, Values
from strategos.components.statistics.validation import validate

LEVEL = 0.01
"""Probability that a gate stops a span for drift, or skew, though there is none."""


def judge(span: Compared, bounds: Mapping[str, Any]) -> Iterator[Check]:
    """Yields every check of a span.

    Args:
      span: The span, and the statistics to compare it with.
      bounds: The setting `gates`.
    """
    for name in GATES.own:
        yield from GATES[name].judge(span, bounds.get(name))
    for name, settings in (bounds.get("plugins") or {}).items():
        yield from GATES[name].judge(span, settings)


def against_schema(
    span: int, statistics: Statistics, schema: schema_pb2.Schema
) -> Iterator[Check]:
    """Yields a failed check for each anomaly that would stop a run.

    Args:
      span: The span's number.
      statistics: The span's statistics.
      schema: The curated schema.
    """
    anomalies = validate(statistics, schema)
    for name, info in sorted(anomalies.anomaly_info.items()):
        if info.severity == anomalies_pb2.AnomalyInfo.ERROR:
            note = f"{info.short_description}: {info.description.strip()}"
            yield Check("schema", span, False, name, note=note)


def distances(
    statistics: Statistics, other: Statistics, limits: Mapping[str, float]
) -> dict[str, float]:
    """Computes the distance between two data sets, by feature; see the module.

    Features that have another type in `other`, or no value in one of both, are left
    out.

    Args:
      statistics: Statistics of the data.
      other: Statistics of the data to compare with.
      limits: The features to compare, each with the bound that TFDV is given.
    """
    schema, others = schema_pb2.Schema(), measure.types_of(other)
    for name, kind in measure.types_of(statistics).items():
        if name in limits and name in others and _alike(kind, others[name]):
            comparator = schema.feature.add(name=name, type=kind).drift_comparator
            text = kind == schema_pb2.BYTES
            distance = "infinity_norm" if text else "jensen_shannon_divergence"
            getattr(comparator, distance).threshold = limits[name]
    result = validate(statistics, schema, previous_statistics=other)
    measured = {  # TFDV's sums may exceed 1 by a rounding error, which 1 is to let pass
        info.path.step[0]: min(info.drift_measurements[0].value, 1.0)
        for info in result.drift_skew_info
        if info.drift_measurements
    }
    now, before = measure.values(statistics), measure.values(other)
    for name in measured.keys() & now.keys() & before.keys():
        measured[name] = max(measured[name], _new_share(now[name], before[name]))
    return measured


def _new_share(values: Values, other: Values) -> float:
    """The share of values in `values` that `other` lacks, less the share by chance."""
    if not other.complete:
        return 0.0
    new = sum(n for value, n in values.counts.items() if value not in other.counts)
    once = sum(n == 1 for n in other.counts.values())
    return min(max(new / values.total - once / other.total, 0.0), 1.0)


def limits_of(bounds: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """The bound of each feature: its own, or the common bound.

    Args:
      bounds: `{"at_most": 0.3, "features": {"carrier": 0.1}}`.
      names: The features.
    """
    return {name: bounds["features"].get(name, bounds["at_most"]) for name in names}


def beyond_chance(
    statistics: Statistics,
    other: Statistics,
    distances: Mapping[str, float],
    limits: Mapping[str, float],
) -> dict[str, float]:
    """The distance that chance explains, by feature farther than its bound.

    Two data sets of one distribution are farther apart, in any of the features, with a
    probability of at most `LEVEL`: each feature that has a bound has an equal share of
    it (Bonferroni).

    Args:
      statistics: Statistics of the data.
      other: Statistics of the data to compare with.
      distances: The distances of both, by feature.
      limits: The bound of each feature; a feature with the bound 1 is not judged.
    """
    judged = [name for name in distances if limits[name] < 1]
    beyond = [name for name in judged if distances[name] > limits[name]]
    if not beyond:
        return {}
    level = LEVEL / len(judged)
    now, before = measure.values(statistics), measure.values(other)
    numbers, others = measure.numbers(statistics), measure.numbers(other)
    by_feature = {}
    for name in beyond:
        if name in now and name in before:
            by_feature[name] = by_chance.of_values(now[name], before[name], level)
        elif name in numbers and name in others:
            by_feature[name] = by_chance.of_numbers(numbers[name], others[name], level)
    return by_feature


class Rows(Gate):
    """The number of rows."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`: `{"at_least": 0.6, "at_most": 1.6}`, relative to the median."""
        if not span.usual.numbers:
            return
        rows = measure.rows(span.found)
        wanted = averages.median(map(measure.rows, span.usual.statistics))
        ratio = rows / max(wanted, 1)
        bound = "at_least" if ratio < 1 else "at_most"
        ok = settings["at_least"] <= ratio <= settings["at_most"]
        note = f"{rows:,} rows; {wanted:,.0f} are usual"
        yield Check("rows", span.number, ok, "", ratio, bound, settings[bound], note)


class Types(Gate):
    """New columns, and columns that changed between text and numbers."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`; without settings."""
        if not span.usual.numbers:
            return
        last, newest = span.usual.last, span.usual.numbers[-1]
        now, before = measure.types_of(span.found), measure.types_of(last)
        for name in sorted(now.keys() & before.keys()):
            if not _alike(now[name], before[name]):
                texts = ("text", "numbers")
                kind, other = texts if _is_text(now[name]) else reversed(texts)
                note = f"{kind}, but {other} in span {newest}"
                yield Check("schema", span.number, False, name, note=note)
        for name in sorted(measure.missing(span.found).keys() - measure.missing(last)):
            note = f"a column that span {newest} does not have"
            yield Check("schema", span.number, False, name, note=note)


class Missing(Gate):
    """The share of rows without a value."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`: the largest rise above the median."""
        if not span.usual.numbers:
            return
        now = measure.missing(span.found)
        before = list(map(measure.missing, span.usual.statistics))
        for name in sorted(before[-1]):
            share = averages.median(each.get(name, 1.0) for each in before)
            value = now.get(name, 1.0)
            note = f"no value in {value:.1%} of the rows; {share:.1%} are usual"
            if name not in now:
                note = f"the column does not exist; {note}"
            rise, limit = value - share, settings
            figure = rise, "may_rise", limit, note
            ok = changes.is_within(share, value, limit)
            yield Check("missing", span.number, ok, name, *figure)


class Drift(Gate):
    """The distance from the span before."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`: `{"at_most": 0.3, "features": {"carrier": 0.1}}`, or None."""
        if settings and span.usual.numbers:
            note = f"against span {span.usual.numbers[-1]}"
            yield from _apart("drift", span, span.usual.last, settings, note)


class Skew(Gate):
    """The distance from serving data."""

    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """See `Gate`: settings as for `Drift`."""
        if settings and span.serving is not None:
            note = f"against {measure.rows(span.serving):,} rows of serving data"
            yield from _apart("skew", span, span.serving, settings, note)


def _apart(
    gate: str, span: Compared, other: Statistics, bounds: Mapping[str, Any], note: str
) -> Iterator[Check]:
    limits = limits_of(bounds, list(measure.types_of(span.found)))
    values = distances(span.found, other, limits)
    chance = beyond_chance(span.found, other, values, limits)
    rows = [f"{measure.rows(each):,}" for each in (span.found, other)]
    for name, value in sorted(values.items()):
        limit, because = limits[name], note
        if name in chance:
            explained = f"{chance[name]:.4g}"
            because += f"; samples of {' and '.join(rows)} rows of one distribution "
            because += f"differ by up to {explained}"
            if limit < value <= chance[name]:
                place = f"{gate}, span {span.number}: `{name}`"
                what = f"{value:.4g} is beyond the bound ({limit:.4g})"
                because += f"; {what}, and is not judged as {gate}"
                events.emit("note", message=f"{place}: {because}")
            limit = max(limit, chance[name])
        figure = value, "at_most", limit, because
        yield Check(gate, span.number, value <= limit, name, *figure)


def _alike(one: int, other: int) -> bool:
    return _is_text(one) == _is_text(other)


def _is_text(kind: int) -> bool:
    return kind == schema_pb2.BYTES
