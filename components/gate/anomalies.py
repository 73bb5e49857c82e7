"""Stops the run if ExampleValidator found that the data do not match the schema."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import types
from tfx.components.example_validator import executor as example_validator
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components import events
from strategos.components.data_files import shards, spans
from strategos.components.data_files.findings import forbidden
from strategos.components.data_files.sources import Reading
from strategos.components.data_files.values import numerals
from strategos.components.errors import GateStoppedError, UserError
from strategos.components.shards.engine import Engine
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.components.wording import counted, first

_SHOWN = 20
_SCHEMA = "schema.pbtxt"
_REMEDY = (
    "Correct the data, or the schema (`schema.file`) if the data are right; or set "
    "`schema.on_anomaly: warn` to continue anyway."
)


class Executor(base_executor.BaseExecutor):
    """Reads the anomalies of all splits; stops the run or warns."""

    def Do(
        self,
        input_dict: Mapping[str, list[types.Artifact]],
        output_dict: Mapping[str, list[types.Artifact]],
        exec_properties: Mapping[str, Any],
    ) -> None:
        """Stops or warns; see `component.AnomalyGate` for inputs and properties.

        Raises:
          GateStoppedError: The data have anomalies and `on_anomaly` is "stop".
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        artifact = artifact_utils.get_single_instance(input_dict["anomalies"])
        stopping: list[str] = []
        warnings: list[str] = []
        at_fault: set[str] = set()
        for split in artifact_utils.decode_split_names(artifact.split_names):
            folder = artifact_utils.get_split_uri([artifact], split)
            anomalies = _read(folder)
            at_fault.update(_at_fault(anomalies))
            for severity, line in _lines(anomalies):
                lenient = severity == anomalies_pb2.AnomalyInfo.WARNING
                kept = warnings if lenient else stopping
                kept.append(f"split `{split}`: {line}")
        if exec_properties["on_anomaly"] == "stop" and stopping:
            rows = _rows(input_dict, exec_properties, at_fault, artifact.uri)
            raise GateStoppedError(_message(stopping, rows, _REMEDY))
        for line in stopping + warnings:
            logging.warning("anomaly: %s", line)
            events.emit("warning", message=f"anomaly: {line}")


def _read(folder: str) -> anomalies_pb2.Anomalies:
    path = os.path.join(folder, example_validator.DEFAULT_FILE_NAME)
    with fileio.open(path, "rb") as file:
        return anomalies_pb2.Anomalies.FromString(file.read())


def _lines(anomalies: anomalies_pb2.Anomalies) -> Iterator[tuple[int, str]]:
    """The severity and the description of each anomaly."""
    if anomalies.data_missing:
        yield anomalies_pb2.AnomalyInfo.ERROR, "has no data"
    if anomalies.HasField("dataset_anomaly_info"):
        info = anomalies.dataset_anomaly_info
        yield info.severity, f"the data as a whole: {_reasons(info)}"
    for name, info in sorted(anomalies.anomaly_info.items()):
        steps = ".".join(info.path.step) or name
        yield info.severity, f"feature `{steps}`: {_reasons(info)}"


def _reasons(info: anomalies_pb2.AnomalyInfo) -> str:
    return "; ".join(
        f"{reason.short_description}: {reason.description.strip()}"
        for reason in info.reason or [info]
    )


def _at_fault(anomalies: anomalies_pb2.Anomalies) -> Iterator[str]:
    """The columns with anomalies that stop a run."""
    for name, info in anomalies.anomaly_info.items():
        if info.severity == anomalies_pb2.AnomalyInfo.ERROR:
            yield info.path.step[0] if info.path.step else name


def _rows(
    input_dict: Mapping[str, list[types.Artifact]],
    exec_properties: Mapping[str, Any],
    names: set[str],
    folder: str,
) -> list[str]:
    """Rows with values that the schema forbids in some columns; [] if none is found."""
    path = os.path.join(artifact_utils.get_single_uri(input_dict["schema"]), _SCHEMA)
    reading = Reading.from_json(exec_properties["reading"])
    pattern = exec_properties["pattern"] or WorkloadPaths.from_environment().examples
    null_values = tuple(json.loads(exec_properties["null_values"]))
    nulls = numerals.Nulls(null_values, reading.csv.decimal)
    schema = io_utils.SchemaReader().read(path).SerializeToString()
    runner = shards.ShardRunner(Engine.from_environment(), folder)
    if not pattern:  # a step that was given no data
        return []
    # Files may be gone, or differ from those at the time.
    with contextlib.suppress(UserError, OSError):
        chosen = spans.resolve_spans(pattern, json.loads(exec_properties["spans"]))
        cut = runner.cut(pattern, shards.open_files(chosen, reading))
        work = forbidden.Search(schema, tuple(sorted(names)), nulls)
        values: forbidden.Forbidden = runner.fold(cut, work, forbidden.Forbidden.merge)
        return values.shown()
    return []


def _message(lines: list[str], rows: list[str], remedy: str) -> str:
    """A heading, the first `lines`, rows, and the remedy."""
    shown = first(lines, _SHOWN)
    anomalies = counted(len(lines), "anomaly", "anomalies")
    heading = f"the data show {anomalies} against the schema:"
    if rows:
        rows = ["rows, of which `strategos anomalies --rows` writes all:", *rows]
    return "\n  ".join([heading, *shown, *rows, remedy])
