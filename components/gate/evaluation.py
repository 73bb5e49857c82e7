"""Stops the run if the Evaluator did not bless the model."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.errors import GateStoppedError
from strategos.components.evaluation.outcome import summary
from strategos.components.evaluation.outcome.blessing import is_blessed
from strategos.components.wording import counted, first

SHOWN = 10


class Executor(base_executor.BaseExecutor):
    """Reads the verdict; the evaluation itself is already published."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Stops the run; see `component.EvaluationGate` for inputs.

        Raises:
          GateStoppedError: The model is not blessed.
        """
        evaluation = artifact_utils.get_single_instance(input_dict["evaluation"])
        blessing = artifact_utils.get_single_instance(input_dict["blessing"])
        file = os.path.join(evaluation.uri, summary.FILE)
        verdict = json.loads(io_utils.read_string_file(file))
        if not is_blessed(blessing):
            raise GateStoppedError(message(verdict))
        logging.info("Blessed: %s.", verdict["reason"])


def message(verdict: Mapping[str, Any]) -> str:
    """The error for a model that is not blessed: bounds, slices, and the consequence.

    Args:
      verdict: The content of `summary.json`.
    """
    objections, failed = verdict.get("objections"), len(summary.failures(verdict))
    bounds = f"{counted(failed, 'bound')} of the evaluator failed"
    why = ["it answers every row alike"] * bool(objections) + [bounds] * bool(failed)
    lines = [f"The model is not blessed: {', and '.join(why)}."]
    lines += [f"  {line}" for line in first(summary.faults(verdict), SHOWN)]
    remedy = "Improve the model or its data"
    remedy += ", or change evaluator.bounds." if failed else "."
    if verdict.get("incomparable"):  # absent in older summaries
        lines.append(f"  {verdict['incomparable']}")
        remedy += f" {summary.WITHOUT_BASELINE}"
    if objections:
        remedy += " `evaluator.allow_constant: true` accepts such a model."
    lines.append(
        "Nothing is pushed; the last good model, if any, keeps serving. " + remedy
    )
    return "\n".join(lines)
