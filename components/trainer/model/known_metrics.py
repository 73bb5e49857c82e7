"""Metrics of Keras, and whether their smaller or larger values are better."""

from __future__ import annotations

from typing import Any

from strategos.components.trainer.compat import compiled, keras3

_UP = (
    "Accuracy BinaryAccuracy CategoricalAccuracy SparseCategoricalAccuracy "
    "TopKCategoricalAccuracy SparseTopKCategoricalAccuracy AUC Precision Recall "
    "PrecisionAtRecall RecallAtPrecision SensitivityAtSpecificity "
    "SpecificityAtSensitivity TruePositives TrueNegatives FBetaScore F1Score IoU "
    "BinaryIoU MeanIoU OneHotIoU OneHotMeanIoU CosineSimilarity R2Score "
    "PearsonCorrelation ConcordanceCorrelation"
)
_DOWN = (
    "MeanSquaredError MeanAbsoluteError MeanAbsolutePercentageError "
    "MeanSquaredLogarithmicError RootMeanSquaredError MeanRelativeError "
    "LogCoshError BinaryCrossentropy CategoricalCrossentropy "
    "SparseCategoricalCrossentropy KLDivergence Poisson Hinge SquaredHinge "
    "CategoricalHinge FalsePositives FalseNegatives"
)


def direction(model: Any, monitor: str) -> str | None:
    """Whether smaller or larger values of a monitored metric are better.

    Args:
      model: A compiled model of either Keras, after its first epoch.
      monitor: Name of a loss or metric in the logs, e.g. `auc` or `val_auc`.

    Returns:
      `min` for losses; `min` or `max` for Keras's own metrics, classes or functions;
      None for others, e.g. a `Mean` that the model updates itself.
    """
    name = monitor.removeprefix("val_")
    metric = compiled.metric_of(model, name)
    direction_of_metric = None if metric is None else _of_metric(metric)
    is_mean = metric is None or type(metric).__name__ == "Mean"
    if (
        direction_of_metric is None
        and is_mean
        and (name == "loss" or name.endswith("_loss"))
    ):
        return "min"
    return direction_of_metric


def _of_metric(metric: Any) -> str | None:
    if not keras3.is_of_keras(type(metric)):
        return None
    kind = type(metric).__name__
    for mode, kinds in (("max", _UP), ("min", _DOWN)):
        if kind in kinds.split():
            return mode
    function = compiled.function_of(metric)
    if function is None or not keras3.is_of_keras(function):
        return None
    if "losses" in function.__module__.split("."):
        return "min"
    is_up = function.__name__.endswith(("accuracy", "cosine_similarity"))
    return "max" if is_up else None
