"""How training is getting on: live text, speed, and a stop at the first NaN."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError

_REPORT_SECONDS = 0.5


class Progress(tf.keras.callbacks.Callback):
    """Reports epoch, step, metrics, examples/s and the time left, twice a second.

    The first step, which compiles, does not count towards the speed, nor does
    evaluation between epochs.

    Args:
      epochs: Passes over the data.
      steps_per_epoch: Steps of a pass.
      rows: Examples of a pass.
      clock: Seconds, ever growing.
    """

    def __init__(
        self,
        epochs: int,
        steps_per_epoch: int,
        rows: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self._supports_tf_logs = True  # no conversion to NumPy at every step
        self._epochs = epochs
        self._steps = steps_per_epoch
        self._rows = rows
        self._clock = clock
        self._epoch = 0
        self._done = 0
        self._busy = 0.0
        self._since = None
        self._reported = -math.inf

    @property
    def steps_done(self) -> int:
        """Steps that ended, in all epochs."""
        return self._done

    @property
    def examples_done(self) -> int:
        """Examples of these steps."""
        full, rest = divmod(self._done, self._steps)
        batch = -(-self._rows // self._steps)
        return full * self._rows + rest * batch

    @property
    def examples_per_second(self) -> float:
        """Examples per second of training, the first step excepted."""
        rate = max(self._done - 1, 0) / self._busy if self._busy else 0.0
        return rate * self._rows / self._steps

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock of an epoch."""
        self._epoch = epoch
        self._since = self._clock() if self._done else None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts a step; reports if half a second has passed."""
        now = self._clock()
        if self._since is not None:
            self._busy += now - self._since
        self._since = now
        self._done += 1
        if "loss" in logs and not math.isfinite(float(logs["loss"])):
            raise UserError(self._not_finite(batch))
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the epoch, evaluation included."""
        self._report(logs)

    def _report(self, logs: Any) -> None:
        step = self._done - self._epoch * self._steps
        text = f"epoch {self._epoch + 1}/{self._epochs}  step {step}/{self._steps}"
        for name, value in logs.items():
            text += f"  {name} {float(value):.4f}"
        speed = self.examples_per_second
        if speed:
            left = (self._epochs * self._rows - self.examples_done) / speed
            text += f"  {speed:,.0f} examples/s  {_duration(left)} left"
        events.emit("progress", message=text)

    def _not_finite(self, batch: int) -> str:
        return (
            f"The loss is not a finite number at step {self._done} (epoch "
            f"{self._epoch + 1}, batch {batch + 1} of {self._steps}). Look for a "
            "learning rate that is too high, a feature or label that is NaN, infinite "
            "or not scaled, and a logarithm or division by zero in the loss."
        )


class MonitorCheck(tf.keras.callbacks.Callback):
    """Refuses a monitored metric that does not exist, once the first epoch names all.

    Args:
      monitor: Name of the metric.
      setting: Key path of the setting, for the error.
    """

    def __init__(self, monitor: str, setting: str):
        super().__init__()
        self._monitor = monitor
        self._setting = setting

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Looks for the metric in what the epoch gave."""
        if self._monitor not in (logs or {}):
            raise UserError(
                f"{self._setting}: received {self._monitor!r}, which this model does "
                f"not measure. Allowed: {', '.join(sorted(logs or {}))}. Metrics are "
                "named in `model.compile(metrics=[…])`."
            )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
