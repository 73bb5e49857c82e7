"""A training loop of the user's own: `run_fn(context)` in place of `fit`.

The loop decides what a step is. Where it is in the data, checkpoints, callbacks,
progress and history follow from what it tells `context.loop`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.loop.callbacks import Hooks
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.model.context import TrainingContext


class EpochMeans(tf.keras.callbacks.Callback):
    """What the steps of an epoch reported, so far; kept in checkpoints."""

    def __init__(self):
        super().__init__()
        self._supports_tf_logs = True
        self.rows = 0
        self.sums: dict[str, float] = {}

    def add(self, rows: int, values: dict[str, float]) -> dict[str, float]:
        """Adds a step of so many rows; the means over the rows so far."""
        self.rows += rows
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + rows * value
        return self._means()

    def take(self) -> dict[str, float]:
        """The mean over the rows of each value; an epoch ends here."""
        means = self._means()
        self.rows, self.sums = 0, {}
        return means

    def _means(self) -> dict[str, float]:
        return {name: value / self.rows for name, value in self.sums.items()}


class Loop:
    """The epochs and steps that are left, and what a loop says of them.

    Example:
      ```python
      for _ in loop.epochs():
          for batch in loop.steps():
              loop.report(loss=train_step(batch))
          loop.end_epoch(val_accuracy=evaluate())
      ```

    Attributes:
      finished: Whether the epochs are all done, or stopped early.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        context: TrainingContext,
        position: Position,
        feed: Callable[[int], Any],
        hooks: Hooks,
        means: EpochMeans,
    ):
        self._model = model
        self._context = context
        self._position = position
        self._feed = feed
        self._hooks = hooks
        self._means = means
        self._ended = False
        self._batches: Iterator[Any] = iter(())
        self._begun = 0  # step at which this part of an epoch began
        self.finished = False

    @property
    def step(self) -> int:
        """Steps that are done, in all epochs; after a restart, those before it too."""
        return self._position.step

    def epochs(self) -> Iterator[int]:
        """The epochs to train, by number; the first may have begun before a restart.

        Ends early where a callback, such as early stopping, says so.
        """
        self._hooks.begin()
        self._batches = iter(self._feed(self.step))
        while self._position.epoch < self._context.epochs:
            if self._model.stop_training:
                break
            epoch, self._ended = self._position.epoch, False
            yield epoch
            if not self._ended:
                raise UserError(
                    f"`run_fn`: epoch {epoch + 1} ended at step {self.step} without "
                    "`loop.end_epoch(…)`, or before all batches of `loop.steps()`."
                )
        self._hooks.end()
        self.finished = True

    def steps(self) -> Iterator[Any]:
        """The global batches left in this epoch, for `strategy.run(step, args=batch)`.

        A batch is `(features, label)`, divided among the replicas as evenly as can be:
        in the last one of an epoch some replicas may have a row more, or none.
        """
        self._hooks.on_epoch_begin(self._position.epoch)
        self._begun = self.step
        left = self._context.steps_per_epoch - self._position.offset
        for number in range(left):
            self._hooks.on_train_batch_begin(number)
            yield next(self._batches)
            if self.step != self._begun + number + 1:
                raise UserError(
                    "`run_fn`: each batch of `loop.steps()` needs one "
                    f"`loop.report(loss=…)`; after step {self._begun + number + 1} "
                    f"there were {self.step}."
                )

    def report(self, **values: Any) -> None:
        """A step is done.

        Args:
          **values: Means over the rows of the global batch, `loss` for one. Their mean
            over all rows of an epoch goes into the history.
        """
        numbers = {name: float(value) for name, value in values.items()}
        rows = int(self._context.rows_of_step(tf.constant(self.step, tf.int64)))
        means = self._means.add(rows, numbers)
        self._hooks.on_train_batch_end(self.step - self._begun, means)

    def end_epoch(self, **values: Any) -> dict[str, float]:
        """An epoch is done, evaluation included.

        Args:
          **values: What was measured once, such as `val_accuracy`.

        Returns:
          The epoch's line of the history: these, and the means of what was reported.
        """
        epoch = (self.step - 1) // self._context.steps_per_epoch
        measured = {name: float(value) for name, value in values.items()}
        line = {**self._means.take(), **measured}
        self._ended = self._position.offset == 0
        self._hooks.on_epoch_end(epoch, line)
        return line


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopContext(TrainingContext):
    """What `run_fn(context)` gets: also what it trains, how, and on what.

    Attributes:
      strategy: The strategy of this process; `run_fn` is called in its scope.
      model: What `build_model(context)` returned, restored if training goes on from a
        checkpoint. What else must survive a restart becomes part of one as an attribute
        of the model: `model.averages = …`.
      loop: The epochs and steps that are left.
      eval_rows: Evaluation examples.
      eval_dataset: Makes one pass over them as they lie, in global batches that are not
        yet distributed.
    """

    strategy: tf.distribute.Strategy
    model: tf.keras.Model
    loop: Loop
    eval_rows: int
    eval_dataset: Callable[[], tf.data.Dataset]

    def alive(self) -> None:
        """Work goes on that is no step: call it now and then in a long evaluation."""
        heartbeat.current().alive()


def run(
    run_fn: Callable[[LoopContext], Any], context: TrainingContext, **parts: Any
) -> None:
    """Calls the user's loop.

    Args:
      run_fn: The user's.
      context: What their `build_model` got.
      **parts: What a `LoopContext` has besides.

    Raises:
      UserError: It returned before training was at its end.
    """
    facts = {f.name: getattr(context, f.name) for f in dataclasses.fields(context)}
    own = LoopContext(**facts, **parts)
    run_fn(own)
    if not own.loop.finished:
        raise UserError(
            f"`run_fn` returned after step {own.loop.step} of "
            f"{own.epochs * own.steps_per_epoch}. Go through all of "
            "`context.loop.epochs()`; to stop early set `model.stop_training = True`."
        )
