"""Measures the share of training time that is spent waiting for the next batch."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

_REMEMBERED = 1 << 14  # elements with times that are kept


class InputWait:
    """Measures how long steps wait for their batches.

    The input pipeline records the time at which each batch enters its last buffer, the
    loop the times at which it starts and ends its steps: a step waited from its start
    until its batch, with the parts of all local replicas, was ready, if that was later.
    This holds for iterators that pull from the buffer themselves (one device) and for
    iterators of distributed datasets, which a thread fills (mirrored, central storage,
    each worker of several). Under a parameter server strategy other processes read.

    Error: the transfer from the last buffer to the device is not counted, some 0.1 ms;
    nor is waiting for other workers with slower input. The first call after a
    restart does not count: it builds the step's graph before it wants a batch. If
    TensorFlow runs several steps per call, all of a call are assumed to take equally
    long. With a GPU the program runs ahead of it: the share is an upper bound. If only
    deterministic kernels are allowed, TensorFlow has no clock, and the share is None.

    Args:
      clock: Time in seconds, for the times of steps.
      timestamp: The same as a TensorFlow operation, for the times of batches.

    Example:
      ```python
      wait = InputWait()
      feed = functools.partial(split.shuffled, batch_size, ..., wait=wait)
      wait.restart()            # before each `fit`, which makes a new iterator
      wait.begin()              # on_train_batch_begin
      wait.end(steps=1)         # on_train_batch_end
      wait.share()              # of the time since the last call: 0.03
      ```
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        timestamp: Callable[[], tf.Tensor] = tf.timestamp,
    ):
        self._clock = clock
        self._timestamp = timestamp
        self._ready = tf.lookup.experimental.MutableHashTable(
            tf.int64, tf.float64, default_value=np.nan
        )
        self._local = 0  # no batch is stamped
        self.restart()

    def stamp(self, batches: tf.data.Dataset, local: int) -> tf.data.Dataset:
        """Records the times at which batches come; a buffer should follow.

        Args:
          batches: The batches of one input pipeline.
          local: Consecutive elements that make a step: replicas fed by this pipeline.
        """
        if not _has_clock():
            return batches
        self._local = local

        @tf.autograph.experimental.do_not_convert
        def note(number: tf.Tensor, batch: tuple) -> tuple:
            self._ready.insert(number % _REMEMBERED, self._timestamp())
            return batch

        return batches.enumerate().map(note)

    def restart(self) -> None:
        """Starts over: the next step takes the first batch of a new iterator."""
        self._calls: list[tuple[float, float, int]] = []  # begin, end, steps
        self._done = 0  # steps before those calls
        self._first = True
        self._begun = self._asked = self._clock()

    def begin(self) -> None:
        """Records that a call, of one step or several, begins."""
        self._begun = self._clock()

    def end(self, steps: int = 1) -> None:
        """Records that the call has ended.

        Args:
          steps: Number of steps in the call.
        """
        now = self._clock()
        if self._first:
            self._first, self._done, self._asked = False, steps, now
        else:
            self._calls.append((self._begun, now, steps))

    def share(self) -> float | None:
        """Time waited, divided by the time since the last call of this method.

        If more steps have ended than are remembered, the share of the newest ones. None
        if no step has ended, or if no times of batches were recorded.
        """
        calls, self._calls = self._calls, []
        requested, self._asked = self._asked, self._clock()
        first = self._done
        self._done += sum(steps for _, _, steps in calls)
        while calls and (self._done - first) * self._local > _REMEMBERED // 2:
            _, requested, steps = calls.pop(0)
            first += steps
        if not calls or not self._local:
            return None
        numbers = np.arange(first + 1, self._done + 1) * self._local - 1
        ready = self._ready.lookup(tf.constant(numbers % _REMEMBERED)).numpy()
        waited = 0.0
        for begin, end, steps in calls:
            waited += _waited(begin, end, ready[:steps])
            ready = ready[steps:]
        return min(waited / max(self._asked - requested, 1e-9), 1.0)


def _has_clock() -> bool:
    try:
        tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _waited(begin: float, end: float, ready: np.ndarray) -> float:
    """Seconds of a call that were spent waiting.

    Of steps that compute for c seconds each, the last one ends no earlier than
    `ready[i] + (len(ready) - i) * c` for each i, and at one of these times.
    """
    left = np.arange(len(ready), 0, -1)
    computing = np.min((end - np.fmax(ready, begin)) / left)
    return max(0.0, end - begin - len(ready) * max(computing, 0.0))
