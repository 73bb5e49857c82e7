"""The callbacks of a training run: the configured ones, the user's, and their state."""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.compat.callbacks import (
    TensorCallback,
    join,
    own,
    watches_batches,
)
from strategos.components.trainer.loop.phases.order import PhaseOrder
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.known_metrics import Monitor
from strategos.components.trainer.model.replicas import local_values
from strategos.components.trainer.phases import Phase
from strategos.components.wording import listed


def configured(
    settings: Mapping[str, Any],
    log_dir: str,
    keras: Any = None,
    order: PhaseOrder | None = None,
) -> list[tf_keras.callbacks.Callback]:
    """Makes the callbacks that `trainer.callbacks` configures.

    Args:
      settings: `trainer.callbacks`.
      log_dir: Folder for TensorBoard's events and the CSV history.
      keras: The Keras package of the model; by default `tf_keras`.
      order: The order of the phases, which the CSV history names.

    Raises:
      UserError: TensorBoard is configured but not installed.
    """
    made_by = (keras or tf_keras).callbacks
    made: list[tf_keras.callbacks.Callback] = []
    for name, make in _MAKERS.items():
        if settings.get(name):
            options = dict(settings[name])
            mode = options.pop("mode", "auto")
            callback = make(made_by, options)
            key = f"trainer.callbacks.{name}"
            made += [Monitor(callback, options["monitor"], mode, key), callback]
    if settings.get("csv"):
        made.append(CsvHistory(f"{log_dir}/history.csv", order))
    if settings.get("tensorboard"):
        made.append(_tensorboard(made_by, settings["tensorboard"], log_dir))
    return list(map(join, made))


def watch_batches(settings: Mapping[str, Any], users: Sequence[Any]) -> bool:
    """Whether a callback needs each batch of training, e.g. TensorBoard's profiler.

    Args:
      settings: `trainer.callbacks`.
      users: The user's own callbacks.
    """
    tensorboard = settings.get("tensorboard")
    profiles = isinstance(tensorboard, Mapping) and tensorboard.get("profile")
    return bool(profiles) or any(map(watches_batches, users))


def note_best_weights(
    settings: Mapping[str, Any], optimizer: Any, phase: Phase | None = None
) -> None:
    """Reports that the best epoch's weights are exported, not averages (`use_ema`).

    Keras does the same: it measures the metrics of the weights, not of the averages.

    Args:
      settings: `trainer.callbacks`.
      optimizer: The optimizer of the model.
      phase: The last phase of the training.
    """
    names = ("best_checkpoint", "early_stopping")
    keys = [f"trainer.callbacks.{name}" for name in names if settings.get(name)]
    if phase and phase.early_stopping:
        keys.append(phase.key("early_stopping"))
    if keys and getattr(keras3.unscaled(optimizer), "use_ema", False):
        events.emit(
            "note",
            message=f"{listed(keys)}: the weights of the best epoch are exported as "
            "they were measured, not the moving averages of the optimizer (`use_ema`)",
        )


def warn_of_choices(
    settings: Mapping[str, Any],
    users: Sequence[Any],
    split: str,
    of_phases: Mapping[str, str] | None = None,
) -> None:
    """Warns of callbacks that make choices on the rows that the Evaluator judges on.

    For example, early stopping on `val_loss` without a validation split.

    Args:
      settings: `trainer.callbacks`.
      users: The user's own callbacks.
      split: The split that training evaluates on.
      of_phases: The metric of each early stopping of a phase, by its setting.
    """
    options = {name: settings[name] for name in _MAKERS if settings.get(name)}
    monitored = {name: section["monitor"] for name, section in options.items()}
    monitored |= of_phases or {}
    for callback in map(own, users):
        if any(isinstance(callback, keras3.classes("callbacks", x)) for x in _CHOOSING):
            monitored[type(callback).__name__] = callback.monitor
    choosing = [x for x, metric in monitored.items() if metric.startswith("val_")]
    if choosing and split == "eval":
        events.emit(
            "warning",
            message=f"rows of `eval` both choose ({', '.join(choosing)}) and judge the "
            "model; data.split.validation: 1 separates them",
        )


class Hooks(tf_keras.callbacks.CallbackList):
    """The callbacks of one training run.

    In an epoch at which a run resumes, they see batches numbered from the start of the
    epoch. `position` is updated before the callbacks are called for a step.

    Args:
      callbacks: The callbacks, in the order in which they are called.
      model: The model that the callbacks get.
      position: The position of training.
      epochs: Passes over the data.
    """

    def __init__(
        self,
        callbacks: list[tf_keras.callbacks.Callback],
        model: tf.keras.Model,
        position: Position,
        epochs: int,
    ):
        super().__init__(
            callbacks,
            add_history=True,
            model=model,
            epochs=epochs,
            steps=position.steps_per_epoch,
            verbose=0,
        )
        self._position = position
        self._begun_at = position.step
        self._of_epoch: Any = None

    def on_train_end(self, logs: Any = None) -> None:
        """Passes the logs of the last epoch, as Keras's `fit`."""
        super().on_train_end(self._of_epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Calls the callbacks at the end of an epoch."""
        self._of_epoch = logs
        super().on_epoch_end(epoch, logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Records the step at which this run's part of an epoch begins."""
        self._begun_at = self._position.step
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Numbers the batch from the start of its epoch."""
        super().on_train_batch_begin(batch + self._skipped(), logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Updates the position, calls the callbacks, then their `correct` methods.

        `correct(logs)` changes logs in place; the epoch's logs are taken from the
        result.
        """
        self._position.step = self.step_of(batch)
        super().on_train_batch_end(batch + self._skipped(), logs)
        for correct in (getattr(each, "correct", None) for each in self.callbacks):
            if correct and logs:
                correct(logs)

    def on_test_begin(self, logs: Any = None) -> None:
        """Averages the replicas' local variables: evaluates as a checkpoint stores."""
        local_values.average(self.model)
        super().on_test_begin(logs)

    def step_of(self, batch: int) -> int:
        """Steps done over all epochs, once a batch is done.

        Args:
          batch: Number of the batch in this run's part of the epoch, from 0.
        """
        return self._begun_at + batch + 1

    def _skipped(self) -> int:
        return self._begun_at % self._position.steps_per_epoch


class BestWeights(TensorCallback):
    """Keeps the weights of the best epoch and restores them at the end of training.

    Args:
      monitor: Name of the metric that decides which epoch is best.

    Attributes:
      monitor_op: Returns whether its first argument is better than its second;
        `np.less` by default.
      best: The metric's best value so far; None before the first.
      best_weights: The weights of the best epoch.
    """

    def __init__(self, monitor: str):
        super().__init__()
        self._monitor = monitor
        self.monitor_op: Callable[[float, float], Any] = np.less
        self.best: float | None = None
        self.best_weights: list[np.ndarray] | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the weights if the epoch was better than all before."""
        value = float(logs[self._monitor])
        if math.isnan(value):
            return  # no later value would compare as better
        if self.best is None or self.monitor_op(value, self.best):
            self.best = value
            self.best_weights = self.model.get_weights()

    def on_train_end(self, logs: Any = None) -> None:
        """Restores the best weights."""
        if self.best_weights is not None:
            self.model.set_weights(self.best_weights)


class WeightAverage(TensorCallback):
    """Sets the mean of the weights after several epochs at the end of training (SWA).

    Args:
      first: The first epoch that counts, from 1.

    Attributes:
      count: Epochs that have counted so far.
      means: The mean of each floating weight in float64, and the last value of others.
    """

    def __init__(self, first: int):
        super().__init__()
        self._first = first
        self.count = 0
        self.means: list[np.ndarray] | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the weights of the epoch to the mean."""
        if epoch + 1 < self._first:
            return
        weights = self.model.get_weights()
        self.count += 1
        before = self.means or weights
        self.means = [
            mean + (np.asarray(value, np.float64) - mean) / self.count
            if np.issubdtype(value.dtype, np.floating)
            else value
            for mean, value in zip(before, weights, strict=True)
        ]

    def on_train_end(self, logs: Any = None) -> None:
        """Sets the mean, unless training ended before the first epoch that counts."""
        if self.means is not None:
            self.model.set_weights(self.means)


class CsvHistory(TensorCallback):
    """Writes one line per epoch: its number, then each metric by name.

    The file is rewritten after each epoch, so that it also holds the epochs before a
    resume.

    Args:
      path: Path of the CSV file.
      order: The order of the phases; a column names the phase of each epoch, if phases
        have names.

    Attributes:
      rows: The line of each epoch: values by name.
    """

    def __init__(self, path: str, order: PhaseOrder | None = None):
        super().__init__()
        self._path, self._order = path, order
        self.rows: list[dict[str, float | str]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's line."""
        values = {name: float(value) for name, value in (logs or {}).items()}
        phase = self._order.current.name if self._order else ""
        named = {"phase": phase} if phase else {}
        self.rows.append({"epoch": epoch + 1, **named, **values})
        text = io.StringIO()
        # The metrics of all epochs: a custom loop may measure some only now and then.
        names = {name: None for row in self.rows for name in row}
        writer = csv.DictWriter(text, list(names))
        writer.writeheader()
        writer.writerows(self.rows)
        tf.io.gfile.makedirs(self._path.rpartition("/")[0])
        with tf.io.gfile.GFile(self._path, "w") as file:
            file.write(text.getvalue())


def _tensorboard(
    callbacks: Any, settings: bool | Mapping[str, Any], log_dir: str
) -> tf_keras.callbacks.Callback:
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "the package `tensorboard` is not installed here",
            key="trainer.callbacks.tensorboard",
            remedy="Install it, or set the callback to false.",
        )
    options = settings if isinstance(settings, Mapping) else {}
    profile = options.get("profile") or 0

    class TensorBoard(callbacks.TensorBoard):
        """Skips the metrics of single steps: no setting of Strategos writes them.

        Keras would ask TensorFlow at each step, for each metric, whether to write it.
        """

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch)

    return TensorBoard(
        log_dir,
        histogram_freq=int(options.get("histograms") or 0),
        profile_batch=tuple(profile) if isinstance(profile, (list, tuple)) else profile,
    )


def keep_profiles(folder: str, target: str) -> None:
    """Copies the profiles of a task, which TensorBoard shows as a run of their own.

    Args:
      folder: The task's folder of logs, on this machine.
      target: The folder for the profiles: a path or URL.
    """
    for path in Path(folder).glob("plugins/profile/*/*"):
        copy = f"{target}/{path.relative_to(folder)}"
        tf.io.gfile.makedirs(os.path.dirname(copy))
        tf.io.gfile.copy(str(path), copy, overwrite=True)


_MAKERS = {
    "reduce_learning_rate": lambda callbacks, s: callbacks.ReduceLROnPlateau(**s),
    "early_stopping": lambda callbacks, s: callbacks.EarlyStopping(
        restore_best_weights=True, **s
    ),
    "best_checkpoint": lambda _, s: BestWeights(**s),
}
_CHOOSING = ("EarlyStopping", "ReduceLROnPlateau")
