"""Gates: nodes that stop a run after a measurement was published."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.gate import anomalies, evaluation, spans


class SpanGateSpec(types.ComponentSpec):
    """Takes the checks of spans; has no outputs."""

    PARAMETERS: dict[str, Any] = {}
    INPUTS = {"anomalies": ChannelParameter(type=standard_artifacts.ExampleAnomalies)}
    OUTPUTS: dict[str, Any] = {}


class SpanGate(base_component.BaseComponent):
    """Stops the run if a new span differs too much from the usual ones.

    Usage:

        gate = SpanGate(anomalies=span_validator.outputs["anomalies"])
        example_gen.add_upstream_node(gate)
    """

    SPEC_CLASS = SpanGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(spans.Executor)

    def __init__(self, *, anomalies: types.BaseChannel):
        """Builds the component.

        Args:
          anomalies: The output of SpanValidator.
        """
        super().__init__(SpanGateSpec(anomalies=anomalies))


class AnomalyGateSpec(types.ComponentSpec):
    """Takes anomalies, and schema and parameters to find their rows; has no outputs."""

    PARAMETERS = {
        name: ExecutionParameter(type=str)
        for name in ("on_anomaly", "pattern", "spans", "null_values", "reading")
    }
    INPUTS = {
        "anomalies": ChannelParameter(type=standard_artifacts.ExampleAnomalies),
        "schema": ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS: dict[str, Any] = {}


class AnomalyGate(base_component.BaseComponent):
    """Stops the run if the data do not match the schema, naming features and rows.

    Usage:

        gate = AnomalyGate(
            anomalies=example_validator.outputs["anomalies"],
            schema=schema_gen.outputs["schema"],
            pattern="/data/*.csv",
            spans="[[0, null]]",
        )
        transform.add_upstream_node(gate)
    """

    SPEC_CLASS = AnomalyGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(anomalies.Executor)

    def __init__(
        self,
        *,
        anomalies: types.BaseChannel,
        schema: types.BaseChannel,
        pattern: str,
        spans: str | RuntimeParameter,
        on_anomaly: str = "stop",
        null_values: str = "[]",
        reading: str = "{}",
    ):
        """Builds the component.

        Args:
          anomalies: The output of ExampleValidator.
          schema: The schema that the data do not match.
          pattern: As for ExampleGen, as are the next ones.
          spans: The spans that were read.
          null_values: Spellings of a missing value in columns of numbers.
          reading: How files are read.
          on_anomaly: "stop", or "warn" to report anomalies and continue. Anomalies of
            severity WARNING never stop a run.
        """
        super().__init__(
            AnomalyGateSpec(
                anomalies=anomalies,
                schema=schema,
                on_anomaly=on_anomaly,
                pattern=pattern,
                spans=spans,
                null_values=null_values,
                reading=reading,
            )
        )


class EvaluationGateSpec(types.ComponentSpec):
    """Takes an evaluation and its verdict; has no outputs."""

    PARAMETERS: dict[str, Any] = {}
    INPUTS = {
        "evaluation": ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS: dict[str, Any] = {}


class EvaluationGate(base_component.BaseComponent):
    """Stops the run if the model is not blessed, naming the bounds that failed.

    Usage:

        gate = EvaluationGate(
            evaluation=evaluator.outputs["evaluation"],
            blessing=evaluator.outputs["blessing"],
        )
        infra_validator.add_upstream_node(gate)
    """

    SPEC_CLASS = EvaluationGateSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(evaluation.Executor)

    def __init__(self, *, evaluation: types.BaseChannel, blessing: types.BaseChannel):
        """Builds the component.

        Args:
          evaluation: The Evaluator's output, with a `summary.json`.
          blessing: The Evaluator's verdict.
        """
        super().__init__(EvaluationGateSpec(evaluation=evaluation, blessing=blessing))
