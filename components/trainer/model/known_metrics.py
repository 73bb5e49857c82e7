"""Metrics of Keras, and whether their smaller or larger values are better."""

from __future__ import annotations

from typing import Any

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.compat.callbacks import TensorCallback, set_mode

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


class Monitor(TensorCallback):
    """Sets whether smaller or larger values of a callback's metric are better.

    Keras guesses by the metric's name: `val_recall` and `val_auc_1` would be losses.

    Args:
      callback: The callback that monitors the metric.
      monitor: Name of the metric.
      mode: `min`, `max`, or `auto`: by the class of the metric, see `direction`.
      setting: Key path of the callback's settings, for errors.
    """

    def __init__(self, callback: Any, monitor: str, mode: str, setting: str):
        super().__init__()
        self._callback = callback
        self._monitor, self._mode, self._setting = monitor, mode, setting

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks the direction of the metric early, if the metric already exists.

        Raises:
          UserError: As in `on_epoch_end`.
        """
        name = self._monitor.removeprefix("val_")
        if compiled.metric_of(self.model, name) is not None:
            self._direction()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Sets the mode of the callback from the metric in the model.

        Raises:
          UserError: The model does not measure the metric, or `mode` is `auto` and the
            metric is not one of Keras's own.
        """
        if self._monitor not in (logs or {}):
            raise UserError(
                "this model measures no such metric",
                key=f"{self._setting}.monitor",
                received=repr(self._monitor),
                expected=", ".join(sorted(logs or {})),
                remedy="Metrics are named in `model.compile(metrics=[…])`.",
            )
        set_mode(self._callback, self._direction())

    def _direction(self) -> str:
        """`min` or `max`."""
        mode: str | None = self._mode
        if mode == "auto":
            mode = direction(self.model, self._monitor)
        if mode is None:
            raise UserError(
                f"the metric `{self._monitor}` is not one of Keras's own whose smaller "
                "or larger values are known to be better",
                key=f"{self._setting}.mode",
                received="auto",
                expected="min, max",
            )
        return mode
