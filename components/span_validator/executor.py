"""Measures the spans of a run that are new, and the usual ones; compares them."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tfx import types
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.example_gen import spans
from strategos.components.example_gen.spans import Span
from strategos.components.schema_file import read_schema
from strategos.components.shards.executor import EngineExecutor
from strategos.components.span_validator import FILE, checks
from strategos.components.span_validator.checks import Check, Usual
from strategos.components.span_validator.measure import Reader
from strategos.components.user_code.workload_paths import WorkloadPaths


class Executor(EngineExecutor):
    """Writes `checks.json`; never stops the run."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Measures and compares; see `component.SpanValidator`.

        Raises:
          UserError: Serving data cannot be read, or the schema.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(output_dict["anomalies"])
        here = WorkloadPaths.from_environment()
        compared = json.loads(exec_properties["compared_spans"])
        schema_file = exec_properties["schema_file"]
        if exec_properties["schema_fingerprint"] and not schema_file:
            schema_file = here.schema
        reader = Reader(
            self._engine,
            exec_properties["pattern"] or here.examples,
            schema_file,
            tuple(json.loads(exec_properties["null_values"])),
            artifact.uri,
        )
        gates = json.loads(exec_properties["gates"])
        serving = exec_properties["serving"] or here.serving
        found = list(_judged(reader, compared, gates, serving))
        # Skew may as well be the fault of the serving data.
        failed = [check for check in found if not check.ok]
        at_fault = {check.span for check in failed if check.gate != "skew"}
        report = {
            "checks": [dataclasses.asdict(check) for check in found],
            "spans": {
                str(number): fingerprint
                for number, _, fingerprint in compared["judged"]
                if number in at_fault
            },
        }
        artifact.split_names = artifact_utils.encode_split_names([])
        path = os.path.join(artifact.uri, FILE)
        io_utils.write_string_file(path, json.dumps(report, indent=1))


def _judged(
    reader: Reader, compared: Mapping[str, Any], gates: Mapping[str, Any], serving: str
) -> Iterator[Check]:
    events.emit("progress", message="measuring spans")
    known = _usual(reader, _resolved(reader, compared["usual"]))
    served = None
    if gates.get("skew"):
        served = _serving(reader, serving)
    for span in _resolved(reader, compared["judged"]):
        try:
            found = reader.of(span)
        except UserError as error:
            note = f"{error.headline}. {error.remedy}".strip()
            yield Check("schema", span.number, False, note=note)
            continue
        if reader.schema_file and gates["on_anomaly"] == "stop":
            schema = read_schema(reader.schema_file)
            yield from checks.against_schema(span.number, found, schema)
        yield from checks.judge(span.number, found, known, gates, served)


def _usual(reader: Reader, found: list[Span]) -> Usual:
    """The statistics of spans; without those that do not fit the schema."""
    numbers, statistics = [], []
    for span in found:
        try:
            statistics.append(reader.of(span))
            numbers.append(span.number)
        except UserError as error:
            logging.warning("span %d is not compared with: %s", span.number, error)
    return Usual(numbers, statistics)


def _resolved(reader: Reader, chosen: list[list[Any]]) -> list[Span]:
    wanted = [edition[:2] for edition in chosen]
    return spans.resolve_spans(reader.pattern, wanted) if wanted else []


def _serving(reader: Reader, pattern: str) -> Any:
    """The statistics of the serving data, whose rows need not have the label."""
    (served,) = spans.resolve_spans(pattern, [[0, None]])
    return dataclasses.replace(reader, pattern=pattern, schema_file="").of(served)
