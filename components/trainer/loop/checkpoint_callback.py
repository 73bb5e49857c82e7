"""When checkpoints are written, and how training resumes from one."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError, required
from strategos.components.trainer.compat import keras3, optimizers
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.trainer.gang import heartbeat, preemption
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.loop.checkpoint.cadence import Cadence, Experience
from strategos.components.trainer.loop.checkpoint.checkpoints import Checkpoints, Found
from strategos.components.trainer.loop.position import Position
from strategos.components.trainer.loop.state import saved_weights, stored_variables
from strategos.components.trainer.loop.state.callback_state import CallbackState
from strategos.components.trainer.model.comparison import structure
from strategos.components.trainer.model.replicas import local_values
from strategos.components.wording import abridged, quoted

_LOOK_SECONDS = 0.5


class Keeper(TensorCallback):
    """Saves a checkpoint when due and on preemption; restores the newest checkpoint.

    Must be the last of the callbacks: at the end of an epoch it saves their state after
    that epoch. All workers check at the same steps and agree by a collective, because
    clocks and signals differ between them. They check about twice a second; a single
    worker checks after each step.

    Args:
      store: Writes and finds the checkpoints.
      cadence: The interval between two checkpoints.
      agreement: Sums values over the workers.
      position: The position of training.
      callbacks: The other callbacks; checkpoints store their state.
    """

    def __init__(
        self,
        store: Checkpoints,
        cadence: Cadence,
        agreement: Agreement,
        position: Position,
        callbacks: Sequence[Any],
    ):
        super().__init__()
        self._store = store
        self._cadence = cadence
        self._agreement = agreement
        self._position = position
        self._callbacks = callbacks
        self._state: CallbackState | None = None
        self._found: Found | None = None
        self._rate: Any = None  # learning rate of the checkpoint
        self._has_added = False
        self._counted_before = ""  # prefix of totals that the first step adds to
        self._structure: structure.Structure | None = None
        self._variables: list[list[Any]] = []
        self._experience, self._began = Experience(), time.monotonic()
        self._saved = self._looked = (self._began, position.step)
        self._next_look = position.step

    def restore(self, model: tf.keras.Model, checkpoint: Found | None) -> None:
        """Reads a checkpoint, if one exists, into the model and the position.

        Args:
          model: The compiled model, built for the phase of the checkpoint.
          checkpoint: A result of `newest`.

        Raises:
          UserError: The checkpoint belongs to another model or another number of steps
            per epoch, or lacks the values of some variables.
        """
        self._structure = structure.of(model)
        self._variables = saved_weights.shapes(model)
        self._found = checkpoint
        self._adapt_to_interruptions(checkpoint)
        if checkpoint is None:
            return
        differing = saved_weights.differences(
            self._variables, checkpoint.state["variables"]
        )
        if differing:
            raise UserError(
                f"The checkpoint {checkpoint.place} is of another model than "
                f"`build_model` makes now: {differing}. Undo the change, or start "
                "anew: strategos run --from-scratch"
            )
        self._check_structure_of(checkpoint)
        self._check_steps_of(checkpoint)
        self._restore_part(model, "model")
        self._rate = optimizers.constant_rate(model)
        if self._rate is not None:
            self._rate = self._rate.numpy()
        self._position.step = self._next_look = checkpoint.step
        _set_random_state(checkpoint.state["random"])
        logging.info("resuming at step %d from %s", checkpoint.step, checkpoint.place)
        if self._store.is_chief:
            events.emit("note", message=f"resuming at step {checkpoint.step:,}")

    def _adapt_to_interruptions(self, checkpoint: Found | None) -> None:
        """Also to those since the last checkpoint, which none of them has stored.

        The chief alone knows of these: all workers save when it does.
        """
        times = int(checkpoint is not None)
        if self._cadence.adapts and self._store.is_chief:
            times += self._store.count_begun(checkpoint.step if checkpoint else 0)
        stored = checkpoint.state.get("experience", {}) if checkpoint else {}
        self._experience = Experience.interrupted(stored, times)
        self._cadence = self._cadence.after(self._experience)

    def _restore_part(self, part: Any, name: str) -> None:
        checkpoint = required(self._found)
        missing = stored_variables.read(
            part, f"{checkpoint.path}/{name}", is_chief=self._store.is_chief
        )
        if missing:
            raise UserError(
                f"The checkpoint {checkpoint.place} has no values for "
                f"{abridged(quoted(missing), 3)}: an earlier version left out the "
                "random state of Keras 3 layers, and layers in lists and dicts. Start "
                "anew: strategos run --from-scratch"
            )

    def _check_structure_of(self, checkpoint: Found) -> None:
        ours = required(self._structure)
        differing = structure.difference(ours, checkpoint.state.get("structure"))
        if differing:
            raise UserError(
                f"The checkpoint {checkpoint.place} ('there') is of another model than "
                f"`build_model` makes now ('here'): {differing}. Undo the change, or "
                f"start anew: strategos run --from-scratch. {structure.CAUSE}"
            )

    def _check_steps_of(self, checkpoint: Found) -> None:
        ours = self._position.steps_per_pass
        theirs = checkpoint.state.get("steps_per_epoch", ours)
        if theirs != ours:
            raise UserError(
                f"The checkpoint {checkpoint.place} counts {theirs:,} steps an epoch, "
                f"this training {ours:,}: under several replicas this model leaves out "
                "a smaller last batch, or `distribution.shard` has changed. Keep the "
                "distribution of before, or start anew: strategos run --from-scratch"
            )

    def set_model(self, model: tf.keras.Model) -> None:
        """Stores the model, and the state of the callbacks before training."""
        super().set_model(model)
        if self._state is None:  # Keras 3's `fit` calls this a second time
            self._state = CallbackState(self._callbacks)

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores the state of the other callbacks, which they have just reset."""
        self._saved = self._looked = (time.monotonic(), self._position.step)
        required(self._state).begin()
        if self._found:
            state, arrays = self._found.state, self._found.arrays
            if "callbacks" in state:  # of a version before typed values
                required(self._state).give_older(state["callbacks"], arrays)
            else:
                required(self._state).give(state["callback_state"], arrays)
            self.model.stop_training = state["stop_training"]
            self._set_rate()

    def _set_rate(self) -> None:
        """Undoes changes of the learning rate that the checkpoint has already."""
        rate = optimizers.constant_rate(self.model)
        if rate is not None and self._rate is not None:
            rate.assign(self._rate)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Restores metrics and learning rate of an epoch resumed in the middle.

        A model's own `train_step` may create metrics in its first step. If so, the
        totals are added after that step.
        """
        if self._found and self._position.offset:
            self._set_rate()
            path, metrics = f"{self._found.path}/metrics", _Metrics(self.model)
            if stored_variables.count(path) > len(metrics.values):
                self._counted_before = path
            else:
                self._restore_part(metrics, "metrics")
        self._found = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Checks whether a checkpoint is due, except at the end of an epoch.

        Raises:
          Preempted: A worker received SIGTERM; all have saved a checkpoint.
        """
        if self._counted_before and self._store.is_chief:
            stored_variables.add_totals(_Metrics(self.model), self._counted_before)
        self._has_added, self._counted_before = bool(self._counted_before), ""
        due = self._position.step >= self._next_look and self._position.is_exact
        if self._position.offset and due:
            self._look()

    def correct(self, logs: dict[str, Any]) -> None:
        """Corrects logs that a step returned before `add_totals` changed the metrics.

        Without this, an epoch that ends with this execution would log wrong values.

        Args:
          logs: The logs of the step, changed in place.
        """
        if self._has_added:
            metrics = {metric.name: metric for metric in self.model.metrics}
            for name in metrics.keys() & logs.keys():
                logs[name] = metrics[name].result()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Checks whether a checkpoint is due, after all other callbacks.

        Raises:
          Preempted: A worker received SIGTERM; all have saved a checkpoint.
        """
        if self._store.is_chief:
            required(self._state).name_lost()
        self._look()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """At the end of the block, however it ends, the last checkpoint is in place.

        Raises:
          UserError: No space is left.
          OSError: The store does not answer, or rejects the request.
        """
        try:
            yield
        except BaseException as first:
            try:
                self._store.finish()
            except (UserError, OSError, tf.errors.OpError) as error:
                stopped = isinstance(first, preemption.Preempted)
                if stopped and isinstance(error, UserError):
                    raise  # no space: else nobody reads of it
                logging.error("the last checkpoint was not written: %s", error)
            raise
        self._store.finish()

    def is_due(self, step: int) -> bool:
        """Whether this worker would save now, without asking the other workers.

        Args:
          step: Steps done.
        """
        return preemption.requested() or self._is_due(time.monotonic(), step)

    def steps_until_due(self, step: int) -> float:
        """Steps until a checkpoint is due; infinite for an interval in seconds.

        Args:
          step: Steps done.
        """
        left = self._cadence.steps_left(step - self._saved[1])
        return left if left > 0 else self._cadence.steps_left(0)  # it is saved now

    def _look(self) -> None:
        self._store.raise_failure()
        now, step = time.monotonic(), self._position.step
        pace = (now - self._looked[0]) / max(step - self._looked[1], 1)
        due, preempted, pace = self._agreement.total(
            self._is_due(now, step), preemption.requested(), pace
        )
        if due or preempted:
            self._save(step)
        if preempted:
            raise preemption.Preempted
        self._looked = (time.monotonic(), step)
        self._next_look = step + self._steps_to_next_look(pace, step)

    def _is_due(self, now: float, step: int) -> bool:
        if self._cadence.adapts and not self._store.is_chief:
            return False  # the chief alone knows how long the files take
        return self._cadence.is_due(step - self._saved[1], now - self._saved[0])

    def _steps_to_next_look(self, total_pace: float, step: int) -> int:
        if self._agreement.alone:
            return 1
        pace = total_pace / self._agreement.workers
        steps = max(1, int(_LOOK_SECONDS / max(pace, 1e-6)))
        left = self._cadence.steps_left(step - self._saved[1])
        return max(1, int(min(steps, left)))

    def _save(self, step: int) -> None:
        heartbeat.current().alive()
        begun = time.monotonic()
        seconds = self._experience.seconds + begun - self._began
        self._experience = dataclasses.replace(self._experience, seconds=seconds)
        self._began = begun
        if keras3.is_model(self.model):
            local_values.average(self.model)
        plain, arrays = required(self._state).take()
        state = {
            "callback_state": plain,
            "stop_training": self.model.stop_training,
            "steps_per_epoch": self._position.steps_per_pass,
            "phase_starts": self._position.phase_starts,
            "variables": self._variables,
            "structure": self._structure,
            "random": _random_state(),
            "experience": dataclasses.asdict(self._experience),
        }
        parts = {"model": self.model, "metrics": _Metrics(self.model)}
        self._store.save(step, parts, state, arrays)
        now = time.monotonic()
        self._saved = (now, step)
        # Writing beside the steps takes processors from them.
        cost = max(now - begun, self._store.seconds)
        self._experience = dataclasses.replace(self._experience, save_seconds=cost)
        self._cadence = self._cadence.after(self._experience)


def newest(store: Checkpoints, agreement: Agreement) -> Found | None:
    """Finds the newest checkpoint of the chief; all workers call this.

    Args:
      store: The checkpoints.
      agreement: Sums values over the workers.

    Returns:
      The checkpoint; None if there is none.
    """
    step = (store.steps() or [-1])[-1] if store.is_chief else 0
    (following,) = agreement.total(step + store.is_chief)
    return store.find(int(following) - 1) if following else None


def phase_starts(checkpoint: Found | None) -> list[int]:
    """First epoch of each phase that had begun, counted from 0.

    Args:
      checkpoint: A result of `newest`; None: training begins.
    """
    if checkpoint is None:
        return [0]
    return list(checkpoint.state.get("phase_starts", [0]))


class _Metrics(tf.Module):
    """The variables of a model's metrics, which the model's checkpoint leaves out."""

    def __init__(self, model: tf.keras.Model):
        super().__init__()
        self.values = [v for metric in model.metrics for v in metric.variables]


def _random_state() -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    of_numpy: Any = np.random.get_state()
    kind, keys, *rest = of_numpy
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, keys.tolist(), *rest],
    }


def _set_random_state(state: dict[str, Any]) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.asarray(keys, np.uint32), *rest))
