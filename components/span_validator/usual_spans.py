"""Checks new spans against the usual ones; `checks` has the comparisons."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from strategos.components import events
from strategos.components.data_files import spans
from strategos.components.data_files.spans import Span
from strategos.components.errors import UserError
from strategos.components.schema_file import read_schema
from strategos.components.span_validator import checks
from strategos.components.span_validator.gate import Check, Compared, Usual
from strategos.components.span_validator.measure import Reader


def judged(
    reader: Reader, compared: Mapping[str, Any], gates: Mapping[str, Any], serving: str
) -> Iterator[Check]:
    """Yields every check of some spans against the usual ones.

    Args:
      reader: The reader of spans.
      compared: `judged` and `usual`: the spans, [number, version] each.
      gates: The setting `gates`, and `on_anomaly`.
      serving: Pattern of the serving data; unused without `skew`.

    Raises:
      UserError: The serving data cannot be read, or the schema.
    """
    events.emit("progress", message="measuring spans")
    known = _usual(reader, _resolved(reader, compared["usual"]))
    served = None
    if gates.get("skew"):
        served = _serving(reader, serving)
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


def _serving(reader: Reader, pattern: str) -> Any:
    """The statistics of the serving data; its rows need not have the label."""
    (served,) = spans.resolve_spans(pattern, [[0, None]])
    return dataclasses.replace(reader, pattern=pattern, schema_file="").of(served)
