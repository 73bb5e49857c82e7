"""Reports progress and speed; keeps the history; stops at NaN; records operations."""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.data.input_wait import InputWait
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import contact, heartbeat
from strategos.components.trainer.loop.own_steps import number
from strategos.components.trainer.loop.phases.order import PhaseOrder
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.operation import Operation
from strategos.components.user_code import user_errors
from strategos.components.wording import duration

_RESULTS = 1_000  # newest results of operations that a recorded task keeps


class Progress(TensorCallback):
    """Reports epoch, step, metrics, examples/s and the time left, twice a second.

    Speed excludes the first step, which compiles, and the evaluation between epochs.
    Every task sends heartbeats; only the chief reports to the user.

    Args:
      context: The training context.
      position: The position of training.
      order: The order of the phases.
      wait: Measures the time that training waits for input; None if other processes
        read the input.
      clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        context: TrainingContext,
        position: Position,
        order: PhaseOrder,
        wait: InputWait | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self._context = context
        self._position = position
        self._order = order
        self._wait = wait
        self._clock = clock
        self._before = position.step
        self._started = False
        self._mark: tuple[float, int] | None = None
        self._busy = 0.0
        self._timed_steps = 0
        self._reported = -math.inf

    @property
    def examples_per_second(self) -> float:
        """Examples per second of training, without the first step; 0 if unknown."""
        rate = self._timed_steps / self._busy if self._busy else 0.0
        return rate * self._context.rows_per_epoch / self._context.steps_per_epoch

    def set_model(self, model: tf.keras.Model) -> None:
        """Stores the model; its first step compiles, and does not count."""
        self._started = self._started and model is self.model
        super().set_model(model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts the clock of the epoch."""
        self._mark = (self._clock(), self._position.step) if self._started else None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts to measure the wait for a batch."""
        self._before = self._position.step
        if self._wait:
            self._wait.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts a step; reports if half a second has passed."""
        now, step = self._clock(), self._position.step
        if self._wait:
            self._wait.end(step - self._before)
        if self._mark:
            self._busy += now - self._mark[0]
            self._timed_steps += step - self._mark[1]
        self._mark, self._started = (now, step), True
        heartbeat.current().step(step)
        if now - self._reported >= events.PROGRESS_SECONDS:
            self._reported = now
            self._report(logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends a heartbeat during evaluation."""
        heartbeat.current().alive()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports the epoch, evaluation included."""
        self._report(logs)

    def _report(self, logs: Any) -> None:
        if not self._context.is_chief:
            return
        done, steps = self._position.step, self._context.steps_per_epoch
        epoch, total = (done - 1) // steps, self._order.steps
        text = f"epoch {epoch + 1}/{total // steps}"  # pass of the step that ended
        if phase := self._order.current.name:
            text += f"  phase {phase}"
        text += f"  step {done - epoch * steps}/{steps}"
        for name, value in logs.items():
            text += f"  {name} {number(name, value):.4f}"
        speed = self.examples_per_second
        if speed:
            left = (total - done) * self._busy
            text += f"  {speed:,.0f} examples/s"
            waiting = self._wait.share() if self._wait else None
            if waiting is not None:
                text += f"  {waiting:.0%} waiting for input"
            text += f"  {duration(left / self._timed_steps)} left"
        events.emit("progress", message=text)


class TerminateOnNaN(TensorCallback):
    """Fails at the first loss that is not finite, naming the step, and at such weights.

    A loss may stay finite while weights are NaN: `relu` makes 0 of NaN on a CPU.

    Args:
      position: The position of training.
      culprits: Maps the steps that may have given it, a range of numbers from 1, to a
        sentence about their features.
    """

    def __init__(self, position: Position, culprits: Callable[[range], str]):
        super().__init__()
        self._position = position
        self._culprits = culprits
        self._finite = 0  # the last step with a finite loss
        self._sound = 0  # the last step with weights that are known to be finite

    def on_train_begin(self, logs: Any = None) -> None:
        """Records the step at which training starts."""
        self._finite = self._sound = self._position.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Checks the loss, which Keras reports as the mean over the epoch so far.

        Raises:
          UserError: The loss is NaN or infinite.
        """
        step, first = self._position.step, self._finite + 1
        if "loss" not in logs or math.isfinite(float(logs["loss"])):
            self._finite = step
            return
        steps = self._position.steps_per_epoch
        where = (
            f"step {step}" if step == first else f"one of the steps {first} to {step}"
        )
        raise UserError(
            f"The loss is not a finite number at {where} (epoch "
            f"{(step - 1) // steps + 1}, batch {batch + 1} of {steps}). "
            f"{self._advice(first, step)}"
        )

    def check_weights(self, model: tf.keras.Model, mark: Sequence[float]) -> None:
        """Checks the weights of a model.

        Args:
          model: The model.
          mark: The sums of its weights, see `_mark`.

        Raises:
          UserError: A weight is NaN, or one that trains is infinite.
        """
        step, first = self._position.step, self._sound + 1
        bad = None if all(map(math.isfinite, mark)) else _not_finite(model)
        if bad is None:
            self._sound = step
            return
        raise UserError(
            f"The weights `{bad}` are not finite numbers after step {step}, though the "
            f"loss is. {self._advice(first, step)}"
        )

    def _advice(self, first: int, last: int) -> str:
        """Names features of some steps that are not finite, and likely causes."""
        culprits = f"{self._culprits(range(first, last + 1))} ".lstrip()
        return (
            f"{culprits}Look for a learning rate that is too high, a feature or label "
            "that is NaN, infinite or not scaled, and a logarithm or division by zero "
            "in the loss."
        )


@contextlib.contextmanager
def step_named(position: Position, culprits: Callable[[range], str]) -> Iterator[None]:
    """Adds the step to errors of operations, e.g. of `tf.debugging.assert_positive`.

    Args:
      position: The position of training.
      culprits: Describes the features of some steps, for a value that is not finite.

    Raises:
      UserError: The error of the body.
    """
    try:
        yield
    except UserError as error:
        cause = error.__cause__
        if not isinstance(cause, tf.errors.OpError) or contact.is_loss(cause):
            raise
        done = f"after step {position.step:,}" if position.step else "in the first step"
        message = f"{error.message} ({done})"
        frames = traceback.extract_tb(cause.__traceback__)
        evaluates = any(frame.name == "evaluate" for frame in frames)
        if user_errors.is_not_finite(cause) and not evaluates:
            step = position.step + 1
            message = f"{message}. {culprits(range(step, step + 1))}".rstrip(". ")
        raise error.but(message=message) from cause


@contextlib.contextmanager
def numerics_checked(operation: Operation, checked: bool = True) -> Iterator[None]:
    """Checks the result of each operation inside the block, if the settings say so.

    Only steps are to be checked: reading rows may find a NaN that no step has met, and
    such an error names no step.

    Args:
      operation: Has `check_numerics`.
      checked: False inside of another such block: checks nothing in this one.
    """
    if not operation.check_numerics:
        yield
        return
    _check_numerics(checked)
    try:
        yield
    finally:
        _check_numerics(not checked)


def _check_numerics(checked: bool) -> None:
    if checked:  # with whole paths, by which errors find user code
        tf.debugging.enable_check_numerics(path_length_limit=4096)
    else:
        tf.debugging.disable_check_numerics()


@contextlib.contextmanager
def recorded(folder: str, cluster: ClusterSpec) -> Iterator[None]:
    """Records a task for TensorFlow's debugger, also if the block fails.

    Of each result of an operation, the numbers of values that are NaN, infinite,
    negative, zero and positive are recorded, with its shape and dtype.

    Args:
      folder: Gets a folder named after task and time; "" records nothing.
      cluster: The task of this process.
    """
    if not folder:
        yield
        return
    task = cluster.task.name if cluster.task else "host"
    own = os.path.join(folder, f"{task}-{time.strftime('%Y%m%d-%H%M%S')}")
    debugging = tf.debugging.experimental
    writer = debugging.enable_dump_debug_info(own, "FULL_HEALTH", _RESULTS)
    if cluster.is_chief:
        command = f"strategos tensorboard --dump {folder}"
        events.emit("note", message=f"recording for TensorFlow's debugger: {command}")
    try:
        yield
    finally:
        writer.FlushNonExecutionFiles()
        writer.FlushExecutionFiles()  # the newest events, from memory
        debugging.disable_dump_debug_info()


class Recorder(TensorCallback):
    """Records the history: one value per epoch for each metric.

    Args:
      reports: Whether to report each epoch, for curves during the training.

    Attributes:
      history: Values by metric name.
      marks: Fingerprints of the evaluated weights by epoch, see `EvaluatedWeights`.
    """

    def __init__(self, reports: bool = False) -> None:
        super().__init__()
        self._reports = reports
        self.marks: dict[str, list[float]] = {}
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the epoch's values."""
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(float(value))
        if self._reports and logs:
            values = {name: self.history[name][-1] for name in logs}
            epoch = max(map(len, self.history.values()))  # also after a resumption
            events.emit("epoch", epoch=epoch, values=values)


class EvaluatedWeights(TensorCallback):
    """Records a fingerprint of the weights evaluated in each epoch.

    After training, it tells which epoch the exported weights belong to: not always the
    last, e.g. with early stopping. Must be the first of the callbacks: others may
    change the weights when an evaluation ends.

    Args:
      recorder: Keeps the fingerprints, also in checkpoints.
      guard: Checks the weights; None for no check.
    """

    def __init__(self, recorder: Recorder, guard: TerminateOnNaN | None):
        super().__init__()
        self._recorder, self._guard = recorder, guard
        self._mark: list[float] | None = None

    def on_test_end(self, logs: Any = None) -> None:
        """Computes the fingerprint of the evaluated weights, and checks them."""
        self._mark = self._present()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Records the fingerprint, if the epoch was evaluated."""
        if self._mark is not None:
            self._recorder.marks[str(epoch)] = self._mark
        self._mark = None

    def epoch(self) -> int | None:
        """Finds the last epoch that was evaluated with the model's present weights.

        Returns:
          The epoch, counted from 1; None if no epoch was evaluated with them.

        Raises:
          UserError: The weights are not finite.
        """
        now = self._present()
        epochs = [int(e) for e, mark in self._recorder.marks.items() if mark == now]
        return max(epochs) + 1 if epochs else None

    def _present(self) -> list[float]:
        mark = _mark(self.model)
        if self._guard:
            self._guard.check_weights(self.model, mark)
        return mark


def _mark(model: tf.keras.Model) -> list[float]:
    """A fingerprint of the weights: sums of each variable, without a copy of it.

    Floating variables give the sum and half the sum of squares, others the sum; text is
    left out.
    """
    sums = []
    for each in compiled.weights(model):
        value = tf.convert_to_tensor(each)
        if value.dtype.is_floating:
            sums += [float(tf.reduce_sum(value)), float(tf.nn.l2_loss(value))]
        elif value.dtype != tf.string:
            sums.append(float(tf.reduce_sum(tf.cast(value, tf.float64))))
    return sums


def _not_finite(model: tf.keras.Model) -> str | None:
    """Name of the first weights with NaN, or with infinity if they train."""
    for each in compiled.weights(model):
        value = tf.convert_to_tensor(each)
        if value.dtype.is_floating:
            bad = tf.math.is_nan(value)
            if each.trainable:
                bad |= tf.math.is_inf(value)
            if tf.reduce_any(bad):
                return getattr(each, "path", each.name).removesuffix(":0")
    return None
