"""SpanValidator: compares new spans with earlier ones, before ExampleGen reads them."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.span_validator import executor


class SpanValidatorSpec(types.ComponentSpec):
    """Parameters and outputs of `SpanValidator`."""

    PARAMETERS = {
        "pattern": ExecutionParameter(type=str),
        "others": ExecutionParameter(type=str),
        "compared_spans": ExecutionParameter(type=str),
        "gates": ExecutionParameter(type=str),
        "schema_file": ExecutionParameter(type=str),
        "schema_fingerprint": ExecutionParameter(type=str),
        "null_values": ExecutionParameter(type=str),
        "reading": ExecutionParameter(type=str),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {"anomalies": ChannelParameter(type=standard_artifacts.ExampleAnomalies)}


class SpanValidator(base_component.BaseComponent):
    """Checks each new span: number of rows, missing values, keys, drift, skew.

    Usage:

        validator = SpanValidator(
            pattern="/data/span-{SPAN}/*.csv",
            compared_spans='{"judged": [[3, null, ""]], "usual": [[2, null, ""]]}',
            gates='{"rows": {"at_least": 0.5, "at_most": 2}, "missing": 0.2}',
        )
        gate = SpanGate(anomalies=validator.outputs["anomalies"])
        example_gen.add_upstream_node(gate)

    Outputs:
      anomalies: `checks.json`, a list of `gate.Check`.
    """

    SPEC_CLASS = SpanValidatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        *,
        pattern: str,
        compared_spans: str | RuntimeParameter,
        gates: str,
        others: str = "{}",
        schema_file: str = "",
        schema_fingerprint: str = "",
        null_values: str = "[]",
        reading: str = "{}",
    ):
        """Builds the component.

        Args:
          pattern: Absolute glob of the data; "" takes it from the environment.
          compared_spans: JSON with `judged` and `usual`, lists of [span, version,
            fingerprint], and fingerprints of `others` by setting.
          gates: The setting `gates` as JSON, with `on_anomaly` of the schema.
          others: JSON of absolute globs of data that spans are compared with, by
            setting, such as `gates.skew.serving`; `{}` takes them from the environment.
          schema_file: As for ExampleGen.
          schema_fingerprint: As for ExampleGen.
          null_values: As for ExampleGen.
          reading: As for ExampleGen.
        """
        super().__init__(
            SpanValidatorSpec(
                pattern=pattern,
                others=others,
                compared_spans=compared_spans,
                gates=gates,
                schema_file=schema_file,
                schema_fingerprint=schema_fingerprint,
                null_values=null_values,
                reading=reading,
                anomalies=types.Channel(type=standard_artifacts.ExampleAnomalies),
            )
        )
