"""BaselineModel: imports the model that the candidate is compared with."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.baseline_model import executor


class BaselineModelSpec(types.ComponentSpec):
    """Parameters and outputs of `BaselineModel`."""

    PARAMETERS = {"baseline": ExecutionParameter(type=str)}
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {"model": ChannelParameter(type=standard_artifacts.Model)}


class BaselineModel(base_component.BaseComponent):
    """Imports the model in production into the pipeline, as an ordinary node.

    Usage:

        baseline = BaselineModel(baseline="serving/flights/1767225600")
        baseline = BaselineModel(baseline="none")  # no model in production yet

    TFX offers a Resolver node for this, but Kubeflow Pipelines does not run it.

    Outputs:
      model: A copy of the SavedModel with its `path` as property, so that evaluation
        still works after the version was removed; or an empty Model with property
        `none` = 1.
    """

    SPEC_CLASS = BaselineModelSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(self, *, baseline: str | RuntimeParameter):
        """Builds the component.

        Args:
          baseline: The SavedModel's folder, or "none".
        """
        model = types.Channel(type=standard_artifacts.Model)
        super().__init__(BaselineModelSpec(baseline=baseline, model=model))
