"""Checks before the first step that the Evaluator can judge a model's answers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.model.comparison import answers
from strategos.components.wording import counted, listed

_JUDGED = "predictions"
_OF_ONE_NUMBER = ("binary", "regression")


def check(
    model: tf.keras.Model, output: Any, task: str, where: str, values: int = 1
) -> None:
    """Rejects a model with exported answers that do not suit the Evaluator's task.

    Args:
      model: The compiled model.
      output: Its output on a few rows, tensors `[rows, …]`, flat or nested.
      task: The Evaluator's task; "" without one, or for several heads.
      where: Name of the function that made the model, for messages.
      values: Numbers a row of the label, or of the features to reconstruct.

    Raises:
      UserError: The model has several outputs of which none is called `predictions`,
        or as many numbers a row as the task cannot judge.
    """
    if not task:
        return
    named = answers.named(output, getattr(model, "output_names", None))
    if len(named) > 1 and _JUDGED not in named:
        raise UserError(
            f"{where}: has the outputs {listed(sorted(named))}, and the Evaluator "
            f"judges one. Name that one `{_JUDGED}`: return a dict of outputs, or name "
            "its layer so."
        )
    judged = named[_JUDGED] if len(named) > 1 else next(iter(named.values()))
    units = judged.shape[1:].num_elements() or 0
    if task == "reconstruction" and units not in (0, values):
        raise UserError(
            f"{where}: answers with {counted(units, 'number')} a row, and the features "
            f"to reconstruct have {values:,}. End the model with a unit for each; or, "
            "if it answers with a score of its own, remove `evaluator`, or return a "
            f"dict of outputs and name the reconstruction `{_JUDGED}`."
        )
    if units == 0 or task not in (*_OF_ONE_NUMBER, "multi_class"):
        return
    if (task in _OF_ONE_NUMBER) != (units == 1):
        raise UserError(
            f"{where}: answers with {counted(units, 'number')} a row, and "
            f"`evaluator.task: {task}` judges {_needed(task)}. {_remedy(task)}"
        )


def _needed(task: str) -> str:
    return "one" if task in _OF_ONE_NUMBER else "one for each class"


def _remedy(task: str) -> str:
    if task == "binary":
        return (
            "End the model with one unit; or, if it ends with a softmax over two "
            "classes, set `evaluator.task: multi_class`."
        )
    if task == "multi_class":
        return (
            "End the model with one unit for each class; or, for one unit and two "
            "classes, set `evaluator.task: binary`."
        )
    return "End the model with one unit."
