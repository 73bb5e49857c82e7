"""Judges kept sums in place of `executor`, in a process without TensorFlow and Beam."""

from __future__ import annotations

from typing import Any

from tfx.dsl.components.base import base_executor

from strategos.components.errors import required
from strategos.components.evaluator.judging import Artifacts, Evaluation


class Executor(base_executor.BaseExecutor):
    """Writes the outputs of `executor.Executor` from the sums that it has kept."""

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> None:
        """Judges; see `component.Evaluator` for inputs, outputs and properties.

        Only for executions for which `Evaluation.kept` has found sums.
        """
        evaluation = Evaluation.of(input_dict, output_dict, exec_properties)
        evaluation.judge_again(required(evaluation.kept()))
