"""Checks new spans against the usual ones; `checks` has the comparisons."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components import events
from strategos.components.data_files import spans
from strategos.components.data_files.spans import Span
from strategos.components.errors import UserError
from strategos.components.schema_file import read_schema
from strategos.components.span_validator import checks, keys, measure
from strategos.components.span_validator.gate import Check, Compared, Usual
from strategos.components.span_validator.measure import Reader


def judged(
    reader: Reader,
    compared: Mapping[str, Any],
    gates: Mapping[str, Any],
    others: Mapping[str, str],
) -> Iterator[Check]:
    """Yields every check of some spans against the usual ones.

    Args:
      reader: The reader of spans.
      compared: `judged` and `usual`: the spans, [number, version] each.
      gates: The setting `gates`, and `on_anomaly`.
      others: Patterns of further data, by setting; that of `skew` is unused without it.

    Raises:
      UserError: The schema, or data to compare with, cannot be read.
    """
    events.emit("progress", message="measuring spans")
    known = _usual(reader, _resolved(reader, compared["usual"]))
    served = None
    if gates.get("skew"):
        served_by, served_span = reader.beside(others["gates.skew.serving"])
        served = served_by.of(served_span)
    for span in _resolved(reader, compared["judged"]):
        try:
            statistics = reader.of(span)
        except UserError as error:
            note = f"{error.headline}. {error.remedy}".strip()
            yield Check("schema", span.number, False, note=note)
            continue
        if reader.schema_file and gates["on_anomaly"] == "stop":
            schema = read_schema(reader.schema_file)
            yield from checks.against_schema(span.number, statistics, schema)
        yield from checks.judge(Compared(span.number, statistics, known, served), gates)
        if gates.get("keys"):
            rows = measure.rows(statistics)
            yield from keys.judge(reader, span, rows, gates["keys"], others)


def _usual(reader: Reader, spans: list[Span]) -> Usual:
    """The statistics of the spans that fit the schema."""
    numbers, statistics = [], []
    for span in spans:
        try:
            statistics.append(reader.of(span))
            numbers.append(span.number)
        except UserError as error:
            message = f"span {span.number} is not compared with: {error}"
            logging.warning(message)
            events.emit("warning", message=message)
    return Usual(numbers, statistics)


def _resolved(reader: Reader, chosen: list[list[Any]]) -> list[Span]:
    wanted = [edition[:2] for edition in chosen]
    return spans.resolve_spans(reader.pattern, wanted) if wanted else []
