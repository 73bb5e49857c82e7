"""Evaluator: decides whether the candidate is good enough, overall and by slice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter
from tfx.types.system_executions import Evaluate

from strategos.components.evaluator import executor, settings_text


class EvaluatorSpec(types.ComponentSpec):
    """Has the inputs and outputs of TFX's Evaluator; the section is in `settings`."""

    PARAMETERS = {"settings": ExecutionParameter(type=str)}
    INPUTS = {
        "examples": ChannelParameter(type=standard_artifacts.Examples),
        "model": ChannelParameter(type=standard_artifacts.Model),
        "baseline_model": ChannelParameter(
            type=standard_artifacts.Model, optional=True
        ),
        "schema": ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS = {
        "evaluation": ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": ChannelParameter(type=standard_artifacts.ModelBlessing),
    }
    TYPE_ANNOTATION = Evaluate


class Evaluator(base_component.BaseComponent):
    """Evaluates a model by slice, compares it with production, and judges it.

    Usage:

        evaluator = Evaluator(
            examples=example_gen.outputs["examples"],      # raw ones
            model=trainer.outputs["model"],
            baseline_model=baseline.outputs["model"],      # optional
            schema=schema_gen.outputs["schema"],
            evaluator={"task": "binary", "metrics": ["auc"], "slices": ["carrier"],
                       "bounds": {"auc": {"at_least": 0.7}}},
            label="late",
        )

    Outputs:
      evaluation: TFMA's files, `summary.json`, `answers.json` (see `points.of`), and
        the overall metrics as properties.
      blessing: In the form of TFX's Evaluator; always blessed or not blessed.

    TFX's Evaluator uses TFMA; its cost per example, slice and metric would dominate the
    time of a run, see `formulas`.
    """

    SPEC_CLASS = EvaluatorSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        *,
        examples: types.BaseChannel,
        model: types.BaseChannel,
        schema: types.BaseChannel,
        evaluator: Mapping[str, Any],
        label: str,
        weight: str = "",
        baseline_model: types.BaseChannel | None = None,
    ):
        """Builds the component.

        Args:
          examples: Raw examples with an eval split.
          model: The candidate.
          schema: Types of the label, the weight and the sliced features.
          evaluator: The evaluator section: task, metrics, slices, bounds.
          label: Name of the label's feature. If it is not among the raw features, the
            candidate's `preprocessing_fn` makes it.
          weight: Name of the feature that weights the rows, of either kind; ""
            (default) for none.
          baseline_model: Output of BaselineModel; ignored if it published no model.
        """
        super().__init__(
            EvaluatorSpec(
                examples=examples,
                model=model,
                baseline_model=baseline_model,
                schema=schema,
                settings=settings_text(evaluator, label, weight),
                evaluation=types.Channel(type=standard_artifacts.ModelEvaluation),
                blessing=types.Channel(type=standard_artifacts.ModelBlessing),
            )
        )
