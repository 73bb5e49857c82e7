"""Gates: nodes that stop a run after a measurement was published."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter

from strategos.components.gate import evaluation


class EvaluationGateSpec(types.ComponentSpec):
    """A measurement and its verdict in, nothing out."""

    PARAMETERS = {}
    INPUTS = {
        "evaluation": ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    OUTPUTS = {}


class EvaluationGate(base_component.BaseComponent):
    """Stops the run where the model is not blessed, and says which bounds failed.

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
          evaluation: With a `summary.json`, as Evaluator publishes it.
          blessing: The Evaluator's verdict.
        """
        super().__init__(EvaluationGateSpec(evaluation=evaluation, blessing=blessing))
