"""A training loop of the user's own: `run_fn(context)` in place of `fit`.

The loop computes the steps. Its calls of `context.loop` drive the position in the data,
checkpoints, callbacks, progress and history.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.own_steps import (
    ReplicaSteps,
    Step,
    plain,
    scalars,
)
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.servers.worker_steps import WorkerSteps
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.replicas import local_values


class EpochMeans(TensorCallback):
    """Means of reported values over the rows of an epoch so far; kept in checkpoints.

    Attributes:
      rows: Number of rows so far.
      sums: Sum over the rows of each value, by name.
      absent: Rows of steps that did not report a value, by its name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.sums: dict[str, float] = {}
        self.absent: dict[str, int] = {}

    def add(self, rows: int, values: dict[str, float]) -> dict[str, float]:
        """Adds a step.

        Args:
          rows: Number of rows of the step.
          values: Means over the rows of the step, by name.

        Returns:
          The means so far, each over the rows of the steps that reported the value.
        """
        self.absent |= {x: self.rows for x in values.keys() - self.sums.keys()}
        for name in self.sums.keys() - values.keys():
            self.absent[name] = self.absent.get(name, 0) + rows
        self.rows += rows
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + rows * value
        return self._means()

    def take(self) -> dict[str, float]:
        """Ends the epoch, and returns the mean of each value over its rows."""
        means = self._means()
        self.rows, self.sums, self.absent = 0, {}, {}
        return means

    def _means(self) -> dict[str, float]:
        return {
            name: value / (self.rows - self.absent.get(name, 0))
            for name, value in self.sums.items()
        }


class Loop:
    """The epochs and steps that are left, and the reports of the user's loop.

    Example:
      ```python
      for _ in loop.epochs():
          loop.train(train_step)
          measured = loop.evaluate(test_step)
          loop.end_epoch(val_accuracy=measured["accuracy"])
      ```

    Attributes:
      finished: Whether all epochs are done, or training was stopped early.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        context: TrainingContext,
        position: Position,
        feed: Callable[[int], Any],
        hooks: Hooks,
        means: EpochMeans,
        taken: ReplicaSteps | WorkerSteps,
    ):
        self._model = model
        self._context = context
        self._position = position
        self._feed = feed
        self._hooks = hooks
        self._means = means
        self._taken = taken
        self._ended = False
        self._batches: Any = iter(())
        self._begun = 0  # step at which this part of the epoch began
        self._epoch: int | None = None  # the one that `epochs` has yielded
        self.finished = False

    @property
    def step(self) -> int:
        """Steps done, over all epochs; after a restart, including those before it."""
        return self._position.step

    def epochs(self) -> Iterator[int]:
        """The epochs to train, by number; the first may have begun before a restart.

        Ends early if a callback, such as early stopping, stops training.

        Raises:
          UserError: The loop left an epoch without `end_epoch`.
        """
        self._hooks.on_train_begin()
        self._batches = iter(self._feed(self.step))
        while self._position.epoch < self._context.epochs:
            if self._model.stop_training:
                break
            self._epoch = epoch = self._position.epoch
            self._ended = False
            yield epoch
            if not self._ended:
                raise UserError(
                    f"`run_fn`: epoch {epoch + 1} ended at step {self.step} without "
                    "`loop.end_epoch(…)`, or before all batches of `loop.steps()`."
                )
        self._hooks.on_train_end()
        self.finished = True

    def train(self, step: Step) -> None:
        """Trains on the batches left in this epoch, under every strategy.

        Does the same as `for batch in loop.steps(): loop.report(**step(batch))`. Under
        parameter servers, steps are scheduled ahead, and each worker reads its batches.

        Args:
          step: Takes a batch, see `steps`, and returns the arguments of `report` as a
            dict of scalars; usually a `tf.function`. Under parameter servers it is
            traced in any case, with the batch of one worker.

        Raises:
          UserError: `step` returns no dict of scalars, or uses an optimizer that can't
            be locked.
        """
        if isinstance(self._taken, ReplicaSteps):
            for batch in self.steps():
                self.report(**scalars(step(batch)))
            return
        self._begin_part()
        left = self._position.left_in_epoch
        self._taken.train(step, self._batches, left, self._means.add)

    def evaluate(self, step: Step) -> dict[str, float]:
        """Measures all evaluation rows once, on all replicas or workers.

        Args:
          step: Takes a batch, and returns means over its rows as a dict of scalars;
            usually a `tf.function`. Batches are divided as those of `steps`, and have
            weights only with `weight`.

        Returns:
          The mean of each value over all evaluation rows.

        Raises:
          UserError: `step` returns no dict of scalars.
        """
        means = EpochMeans()
        for rows, values in self._taken.evaluated(step):
            means.add(rows, values)
        return means.take()

    def steps(self) -> Iterator[Any]:
        """The global batches left in this epoch, for `strategy.run(step, args=batch)`.

        A batch is `(features, label)`, or `(features, label, weight)` with `weight` or
        `trainer.class_weight`, where weight is float32 `[rows]`. It is divided among
        the replicas as evenly as possible: in the last batch of an epoch some replicas
        may have one row more than others, or no rows.

        Raises:
          UserError: The loop did not call `report` once for the batch; or the workers
            of parameter servers take steps independently, see `train`.
        """
        self._check_together("loop.steps()")
        self._begin_part()
        left = self._position.left_in_epoch
        for number in range(left):
            self._hooks.on_train_batch_begin(number)
            yield next(self._batches)
            if self.step != self._begun + number + 1:
                raise UserError(
                    "`run_fn`: each batch of `loop.steps()` needs one "
                    f"`loop.report(loss=…)`; after step {self._begun + number + 1} "
                    f"there were {self.step}."
                )
        local_values.average(self._model)  # the loop may evaluate now

    def report(self, **values: Any) -> None:
        """Reports that a step is done.

        Args:
          **values: Means over the rows of the global batch, such as `loss`. Their mean
            over all rows of an epoch goes into the history; of a value that some steps
            leave out, over the rows of the others.

        Raises:
          UserError: The strategy is `parameter_server`, see `train`.
        """
        self._check_together("loop.report(…)")
        numbers = plain(values)
        rows = int(self._context.rows_of_step(tf.constant(self.step, tf.int64)))
        means = self._means.add(rows, numbers)
        self._hooks.on_train_batch_end(self.step - self._begun, means)

    def end_epoch(self, **values: Any) -> dict[str, float]:
        """Reports that an epoch is done, evaluation included.

        Args:
          **values: Measurements of the epoch, such as `val_accuracy`.

        Returns:
          The epoch's line of the history: `values`, and the means of the reported
          values.
        """
        epoch = (self.step - 1) // self._context.steps_per_epoch
        line = {**self._means.take(), **plain(values)}
        self._ended = self._position.offset == 0
        self._hooks.on_epoch_end(epoch, line)
        return line

    def _begin_part(self) -> None:
        """Begins what is left of the epoch.

        Raises:
          UserError: No step is left: the next one is of the next epoch.
        """
        if self._epoch is None:
            raise UserError(
                "`run_fn`: takes steps outside of an epoch",
                remedy="Take them inside of `for epoch in context.loop.epochs():`.",
            )
        if self._position.epoch != self._epoch:
            raise UserError(
                f"`run_fn`: takes steps after all batches of epoch {self._epoch + 1}",
                remedy="Call `loop.train(step)`, or go through `loop.steps()`, once in "
                "an epoch, then `loop.end_epoch(…)`. For two updates on a batch, do "
                "both in `step`.",
            )
        self._hooks.on_epoch_begin(self._position.epoch)
        self._begun = self.step

    def _check_together(self, call: str) -> None:
        if isinstance(self._taken, WorkerSteps):
            raise UserError(
                f"`run_fn`: `{call}` needs workers that take each step together, which "
                "they do not under parameter_server",
                remedy="Call `loop.train(step)`, where `step` takes a batch and "
                'returns `{"loss": loss}`: it trains under every strategy.',
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopContext(TrainingContext):
    """The argument of `run_fn(context)`: a `TrainingContext` with model and strategy.

    Attributes:
      strategy: The strategy of this process; `run_fn` is called in its scope.
      model: The model of `build_model(context)`, restored if training resumes from a
        checkpoint. Any other state that must survive a restart is checkpointed as an
        attribute of the model, e.g. `model.averages = …`.
      loop: The epochs and steps that are left.
      eval_rows: Number of evaluation examples.
      eval_dataset: Makes one pass over the evaluation examples in their order, in
        global batches that are not yet distributed; a batch has weights only with
        `weight`.
    """

    strategy: tf.distribute.Strategy
    model: tf.keras.Model
    loop: Loop
    eval_rows: int
    eval_dataset: Callable[[], tf.data.Dataset]

    def alive(self) -> None:
        """Sends a heartbeat; call it now and then in a long evaluation."""
        heartbeat.current().alive()


def run(
    run_fn: Callable[[LoopContext], Any],
    context: TrainingContext,
    loop: Loop,
    model: tf.keras.Model,
    strategy: tf.distribute.Strategy,
    evaluated: Split,
) -> None:
    """Calls the user's loop.

    Args:
      run_fn: The user's `run_fn`.
      context: The context of `build_model`.
      loop: The epochs and steps that are left.
      model: The model that is trained.
      strategy: The strategy of this process.
      evaluated: The evaluation examples.

    Raises:
      UserError: The loop returned before the end of training.
    """
    ordered = keras3.batches(model, evaluated.ordered)
    own = LoopContext(
        **{f.name: getattr(context, f.name) for f in dataclasses.fields(context)},
        strategy=strategy,
        model=model,
        loop=loop,
        eval_rows=evaluated.rows,
        eval_dataset=functools.partial(ordered, context.global_batch_size),
    )
    with compiled.weights_kept(model):  # without the state of the loop
        run_fn(own)
    if not loop.finished:
        raise UserError(
            f"`run_fn` returned after step {loop.step} of "
            f"{own.epochs * own.steps_per_epoch}. Go through all of "
            "`context.loop.epochs()`; to stop early set `model.stop_training = True`."
        )
