"""Stops the run if ExampleValidator found that the data do not match the schema."""

from __future__ import annotations

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

from strategos.components import events
from strategos.components.errors import GateStoppedError
from strategos.components.wording import counted, first

_SHOWN = 20
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
        for split in artifact_utils.decode_split_names(artifact.split_names):
            folder = artifact_utils.get_split_uri([artifact], split)
            for severity, line in _lines(_read(folder)):
                lenient = severity == anomalies_pb2.AnomalyInfo.WARNING
                kept = warnings if lenient else stopping
                kept.append(f"split `{split}`: {line}")
        if exec_properties["on_anomaly"] == "stop" and stopping:
            raise GateStoppedError(_message(stopping, _REMEDY))
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


def _message(lines: list[str], remedy: str) -> str:
    """A heading, the first `lines`, and the remedy."""
    shown = first(lines, _SHOWN)
    anomalies = counted(len(lines), "anomaly", "anomalies")
    return "\n  ".join(
        [f"the data show {anomalies} against the schema:", *shown, remedy]
    )
