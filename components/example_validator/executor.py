"""Validates the statistics of each split by TFX's executor, some columns at a time."""

from __future__ import annotations

import os
from typing import Any

from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx.components.example_validator import executor as stock
from tfx.components.example_validator import labels
from tfx.types import standard_component_specs as keys
from tfx.utils import writer_utils

from strategos.components.statistics.validation import validate


class Executor(stock.Executor):
    """TFX's executor, without `custom_validation_config`, which TFX 1.21 lacks."""

    def _Validate(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> anomalies_pb2.Anomalies:
        """Writes and returns the anomalies of a split; see TFX's executor."""
        anomalies = validate(inputs[keys.STATISTICS_KEY], inputs[keys.SCHEMA_KEY])
        folder = outputs[labels.SCHEMA_DIFF_PATH]
        writer_utils.write_anomalies(
            os.path.join(folder, stock.DEFAULT_FILE_NAME), anomalies
        )
        return anomalies
