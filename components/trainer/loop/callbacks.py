"""The callbacks of a training run: the configured ones, the user's, and their state."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.progress import MonitorCheck, Progress
from strategos.components.trainer.model.effects import Unchanged

_NOT_STATE = ("model", "params", "validation_data")


def configured(
    settings: Mapping[str, Any], log_dir: str, keras: Any = None
) -> list[tf.keras.callbacks.Callback]:
    """The callbacks that `trainer.callbacks` asks for.

    Args:
      settings: `trainer.callbacks`.
      log_dir: For TensorBoard's events and the CSV history.
      keras: The package of the model; by default `tf.keras`.

    Raises:
      UserError: TensorBoard is asked for and not installed.
    """
    made_by = (keras or tf.keras).callbacks
    found: list[tf.keras.callbacks.Callback] = []
    for name, make in _MAKERS.items():
        if settings.get(name):
            key = f"trainer.callbacks.{name}"
            monitor = settings[name].get("monitor")
            found.append(MonitorCheck(monitor, f"{key}.monitor"))
            found.append(make(made_by, settings[name]))
    if settings.get("csv"):
        found.append(CsvHistory(f"{log_dir}/history.csv"))
    if settings.get("tensorboard"):
        found.append(_tensorboard(made_by, settings["tensorboard"], log_dir))
    return list(map(keras3.join, found))


class Hooks(tf.keras.callbacks.CallbackList):
    """Callbacks of one training run, which may take several calls of `fit`.

    A run that starts in the middle of an epoch takes two. Training begins and ends once
    for the callbacks, and they see batches as if there had been one call. Before any of
    them hears of a step, `position` has it.

    Args:
      callbacks: In the order in which they are called.
      model: What they are told of.
      position: Where training is.
      epochs: Passes over the data.
      summed_over: Replicas over which tf-keras adds up the metrics of a batch under
        MultiWorkerMirroredStrategy, though each has the metrics of all; callbacks get
        them right. In the logs of an epoch they are right by themselves.
    """

    def __init__(
        self,
        callbacks: list[tf.keras.callbacks.Callback],
        model: tf.keras.Model,
        position: Position,
        epochs: int,
        summed_over: int = 1,
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
        self._summed_over = summed_over

    def begin(self) -> None:
        """Training begins."""
        super().on_train_begin()

    def end(self) -> None:
        """Training has ended."""
        super().on_train_end()

    def on_train_begin(self, logs: Any = None) -> None:
        """A call of `fit` begins: no news to the callbacks."""

    def on_train_end(self, logs: Any = None) -> None:
        """A call of `fit` ends: no news to the callbacks."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes where this part of an epoch begins."""
        self._begun_at = self._position.step
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Counts the batch from the start of its epoch."""
        super().on_train_batch_begin(batch + self._skipped(), logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Moves the position on, then tells the callbacks."""
        self._position.step = self.step_of(batch)
        if self._summed_over > 1:
            logs = {name: value / self._summed_over for name, value in logs.items()}
        super().on_train_batch_end(batch + self._skipped(), logs)

    def step_of(self, batch: int) -> int:
        """Steps done when `batch` of this call of `fit` is, in all epochs."""
        return self._begun_at + batch + 1

    def _skipped(self) -> int:
        return self._begun_at % self._position.steps_per_epoch


class BestWeights(tf.keras.callbacks.Callback):
    """Keeps the weights of the best epoch and gives them to the model in the end.

    Args:
      monitor: The metric that says which epoch is best.
      mode: `min`, `max`, or `auto`: by the metric's name, as in Keras.
    """

    def __init__(self, monitor: str, mode: str = "auto"):
        super().__init__()
        self._supports_tf_logs = True
        self._monitor = monitor
        # Keras knows which way a metric goes.
        judge = tf.keras.callbacks.EarlyStopping(monitor=monitor, mode=mode)
        self._better = judge.monitor_op
        self.best: float | None = None
        self.best_weights: list[np.ndarray] | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Takes the weights if the epoch was better than all before."""
        value = float(logs[self._monitor])
        if math.isnan(value):
            return  # nothing would ever be better
        if self.best is None or self._better(value, self.best):
            self.best = value
            self.best_weights = self.model.get_weights()

    def on_train_end(self, logs: Any = None) -> None:
        """Gives the best weights to the model."""
        if self.best_weights is not None:
            self.model.set_weights(self.best_weights)


class CsvHistory(tf.keras.callbacks.Callback):
    """Writes a line per epoch: its number, then each metric by name.

    The file is written anew after each epoch: it is the history, also after a resume.

    Args:
      path: Of the CSV file.
    """

    def __init__(self, path: str):
        super().__init__()
        self._supports_tf_logs = True
        self._path = path
        self.rows: list[dict[str, float]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's line."""
        values = {name: float(value) for name, value in (logs or {}).items()}
        self.rows.append({"epoch": epoch + 1, **values})
        text = io.StringIO()
        # All that any epoch measured: a loop of one's own may do so now and then.
        names = {name: None for row in self.rows for name in row}
        writer = csv.DictWriter(text, list(names))
        writer.writeheader()
        writer.writerows(self.rows)
        tf.io.gfile.makedirs(self._path.rpartition("/")[0])
        with tf.io.gfile.GFile(self._path, "w") as file:
            file.write(text.getvalue())


class CallbackState:
    """What callbacks remember: patience, best value, best weights.

    Of each callback, the attributes that changed since the start and are JSON-able or
    lists of arrays; so the user's own callbacks resume by the same means as Keras's.
    What Progress, Unchanged and TensorBoard remember is of this process (clocks, a
    profiler that runs) and of no use to another.

    Args:
      callbacks: In their order, before training begins.
    """

    def __init__(self, callbacks: Sequence[Any]):
        passing = (Progress, Unchanged, *keras3.classes("callbacks", "TensorBoard"))
        self._callbacks = [x for x in callbacks if not isinstance(x, passing)]
        self._before = [_plain(callback) for callback in self._callbacks]

    def take(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """A JSON-able dict per callback, and arrays by `number/attribute/index`."""
        changed, arrays = [], {}
        for number, callback in enumerate(self._callbacks):
            now, before = _plain(callback), self._before[number]
            changed.append(
                {k: v for k, v in now.items() if k not in before or before[k] != v}
            )
            for name, value in vars(callback).items():
                if _is_arrays(value):
                    keys = (f"{number}/{name}/{i}" for i in range(len(value)))
                    arrays |= dict(zip(keys, map(np.asarray, value), strict=True))
        return changed, arrays

    def give(
        self, plain: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Gives callbacks like these what `take` took."""
        for callback, kept in zip(self._callbacks, plain, strict=True):
            vars(callback).update(kept)
        found: dict[tuple[int, str], dict[int, np.ndarray]] = {}
        for key, array in arrays.items():
            number, name, index = key.split("/")
            found.setdefault((int(number), name), {})[int(index)] = array
        for (number, name), parts in found.items():
            values = [parts[index] for index in range(len(parts))]
            vars(self._callbacks[number])[name] = values


def _plain(callback: Any) -> dict[str, Any]:
    """The JSON-able attributes of a callback, copied."""
    found = {}
    for name, value in vars(callback).items():
        if name in _NOT_STATE:
            continue
        if isinstance(value, np.generic):
            found[name] = value.item()
            continue
        with contextlib.suppress(TypeError, ValueError):
            copied = json.loads(json.dumps(value))
            if copied == value:
                found[name] = copied
    return found


def _is_arrays(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, (np.ndarray, np.generic)) for item in value)
    )


def _early_stopping(
    callbacks: Any, settings: Mapping[str, Any]
) -> tf.keras.callbacks.Callback:
    return callbacks.EarlyStopping(restore_best_weights=True, **settings)


def _tensorboard(
    callbacks: Any, settings: bool | Mapping[str, Any], log_dir: str
) -> tf.keras.callbacks.Callback:
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "trainer.callbacks.tensorboard: the package `tensorboard` is not "
            "installed here. Install it, or set the callback to false."
        )
    asked = {} if settings is True else settings
    profile = asked.get("profile") or 0
    return callbacks.TensorBoard(
        log_dir,
        histogram_freq=int(asked.get("histograms") or 0),
        profile_batch=tuple(profile) if isinstance(profile, (list, tuple)) else profile,
    )


_MAKERS = {
    "reduce_learning_rate": lambda callbacks, s: callbacks.ReduceLROnPlateau(**s),
    "early_stopping": _early_stopping,
    "best_checkpoint": lambda _, s: BestWeights(**s),
}
