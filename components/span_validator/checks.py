"""Compares the statistics of a span with those of the spans before it.

Distances are TFDV's: L-infinity between the shares of a text's values, and the
Jensen-Shannon divergence (base 2) between the histograms of numbers; both 0 to 1.
Values of a text that the data to compare with do not have count together, as one value
whose share was 0, as far as they are more than chance would bring (Good and Turing: the
share of rows whose value occurs once).
"""

from __future__ import annotations

import dataclasses
import statistics as averages
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from strategos.components.span_validator import measure
from strategos.components.span_validator.measure import Statistics, Values


@dataclasses.dataclass(frozen=True)
class Check:
    """One figure of a span against its bound.

    Attributes:
      gate: `schema`, `rows`, `missing`, `drift` or `skew`.
      span: The span's number.
      ok: Whether the bound holds.
      feature: The column; "" for the span as a whole.
      received: The figure; None for `schema`, and where too few rows are compared.
      bound: `at_least`, `at_most` or `may_rise`; "" for `schema`.
      required: The bound's number.
      note: What was compared, or what is wrong.
    """

    gate: str
    span: int
    ok: bool
    feature: str = ""
    received: float | None = None
    bound: str = ""
    required: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Usual:
    """What spans usually look like.

    Attributes:
      numbers: The numbers of the spans, ascending.
      statistics: Their statistics.
    """

    numbers: Sequence[int]
    statistics: Sequence[Statistics]

    @property
    def last(self) -> Statistics:
        """The statistics of the newest of these spans."""
        return self.statistics[-1]


def judge(
    span: int,
    found: Statistics,
    usual: Usual,
    bounds: Mapping[str, Any],
    serving: Statistics | None = None,
) -> Iterator[Check]:
    """Yields every check of a span.

    Args:
      span: The span's number.
      found: The span's statistics.
      usual: Accepted spans before it; with none, nothing but the skew is compared.
      bounds: The setting `gates`.
      serving: Statistics of the rows that the model in production was given.
    """
    if usual.numbers:
        yield _rows(span, found, usual, bounds["rows"])
        yield from _types(span, found, usual)
        yield from _missing(span, found, usual, bounds["missing"])
        if bounds.get("drift"):
            note = f"against span {usual.numbers[-1]}"
            yield from _apart("drift", span, found, usual.last, bounds["drift"], note)
    if serving is not None and bounds.get("skew"):
        note = f"against {measure.rows(serving):,} rows of serving data"
        yield from _apart("skew", span, found, serving, bounds["skew"], note)


def against_schema(
    span: int, found: Statistics, schema: schema_pb2.Schema
) -> Iterator[Check]:
    """Yields a failed check for each anomaly that would stop a run.

    Args:
      span: The span's number.
      found: The span's statistics.
      schema: The curated schema.
    """
    anomalies = tfdv.validate_statistics(found, schema)
    for name, info in sorted(anomalies.anomaly_info.items()):
        if info.severity == anomalies_pb2.AnomalyInfo.ERROR:
            note = f"{info.short_description}: {info.description.strip()}"
            yield Check("schema", span, False, name, note=note)


def distances(
    found: Statistics, other: Statistics, limits: Mapping[str, float]
) -> dict[str, float]:
    """Computes the distance between two data sets, by feature; see the module.

    Features that have another type in `other`, or no value in one of both, are left
    out.

    Args:
      found: Statistics of the data.
      other: Statistics of the data to compare with.
      limits: The features to compare, each with the bound that TFDV is given.
    """
    schema, others = schema_pb2.Schema(), measure.types_of(other)
    for name, kind in measure.types_of(found).items():
        if name in limits and name in others and _alike(kind, others[name]):
            comparator = schema.feature.add(name=name, type=kind).drift_comparator
            text = kind == schema_pb2.BYTES
            distance = "infinity_norm" if text else "jensen_shannon_divergence"
            getattr(comparator, distance).threshold = limits[name]
    result = tfdv.validate_statistics(found, schema, previous_statistics=other)
    measured = {  # TFDV's sums may exceed 1 by a rounding error, which 1 is to let pass
        info.path.step[0]: min(info.drift_measurements[0].value, 1.0)
        for info in result.drift_skew_info
        if info.drift_measurements
    }
    now, before = measure.values(found), measure.values(other)
    for name in measured.keys() & now.keys() & before.keys():
        measured[name] = max(measured[name], _new_share(now[name], before[name]))
    return measured


def _new_share(found: Values, other: Values) -> float:
    """The share of values in `found` that `other` lacks, less that of chance."""
    if not other.complete:
        return 0.0
    new = sum(n for value, n in found.counts.items() if value not in other.counts)
    once = sum(n == 1 for n in other.counts.values())
    return min(max(new / found.total - once / other.total, 0.0), 1.0)


def limits_of(bounds: Mapping[str, Any], names: Sequence[str]) -> dict[str, float]:
    """The bound of each feature: its own, or that of all.

    Args:
      bounds: `{"at_most": 0.3, "features": {"carrier": 0.1}}`.
      names: The features.
    """
    return {name: bounds["features"].get(name, bounds["at_most"]) for name in names}


def few_rows(found: Statistics, other: Statistics, bounds: Mapping[str, Any]) -> str:
    """Says that two data sets have too few rows to be compared; "" if they have enough.

    Args:
      found: Statistics of the data.
      other: Statistics of the data to compare with.
      bounds: Has `min_rows`, where the setting exists.
    """
    rows, least = min(map(measure.rows, (found, other))), bounds.get("min_rows", 0)
    return f"{rows:,.0f} rows are fewer than min_rows: {least:,}" * (rows < least)


def _apart(
    gate: str,
    span: int,
    found: Statistics,
    other: Statistics,
    bounds: Mapping[str, Any],
    note: str,
) -> Iterator[Check]:
    if rows := few_rows(found, other, bounds):
        yield Check(gate, span, True, note=f"not judged: {rows}; {note}")
        return
    limits = limits_of(bounds, list(measure.types_of(found)))
    for name, value in sorted(distances(found, other, limits).items()):
        limit = limits[name]
        yield Check(gate, span, value <= limit, name, value, "at_most", limit, note)


def _rows(
    span: int, found: Statistics, usual: Usual, bounds: Mapping[str, float]
) -> Check:
    wanted = averages.median(map(measure.rows, usual.statistics))
    ratio = measure.rows(found) / max(wanted, 1)
    bound = "at_least" if ratio < 1 else "at_most"
    low, high = bounds["at_least"], bounds["at_most"]
    note = f"{measure.rows(found):,} rows; {wanted:,.0f} are usual"
    required = low if ratio < 1 else high
    return Check("rows", span, low <= ratio <= high, "", ratio, bound, required, note)


def _types(span: int, found: Statistics, usual: Usual) -> Iterator[Check]:
    now, before = measure.types_of(found), measure.types_of(usual.last)
    for name in sorted(now.keys() & before.keys()):
        if not _alike(now[name], before[name]):
            texts = ("text", "numbers") if _is_text(now[name]) else ("numbers", "text")
            note = f"{texts[0]}, but {texts[1]} in span {usual.numbers[-1]}"
            yield Check("schema", span, False, name, note=note)
    for name in sorted(measure.missing(found).keys() - measure.missing(usual.last)):
        note = f"a column that span {usual.numbers[-1]} does not have"
        yield Check("schema", span, False, name, note=note)


def _missing(
    span: int, found: Statistics, usual: Usual, may_rise: float
) -> Iterator[Check]:
    now, before = measure.missing(found), list(map(measure.missing, usual.statistics))
    for name in sorted(before[-1]):
        share = averages.median(each.get(name, 1.0) for each in before)
        value = now.get(name, 1.0)
        rise = value - share
        note = f"no value in {value:.1%} of the rows; {share:.1%} are usual"
        if name not in now:
            note = f"the column does not exist; {note}"
        yield Check(
            "missing", span, rise <= may_rise, name, rise, "may_rise", may_rise, note
        )


def _alike(one: int, other: int) -> bool:
    return _is_text(one) == _is_text(other)


def _is_text(kind: int) -> bool:
    return kind == schema_pb2.BYTES
