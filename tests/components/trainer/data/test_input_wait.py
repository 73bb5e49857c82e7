from __future__ import annotations

import time

import pytest


class _Time:
    """A simulated clock, for a loop and for the input that it waits for."""

    now = 0.0
    schedule = iter(())

    def clock(self) -> float:
        return self.now

    def timestamp(self):
        import tensorflow as tf

        schedule = self.schedule
        ready = tf.numpy_function(lambda: next(schedule), [], tf.float64)
        return tf.ensure_shape(ready, ())


@pytest.fixture
def share():
    """Share of waiting: `share(making=…, computing=…, steps=…)`, seconds per step."""
    import tensorflow as tf

    from strategos.components.trainer.data.input_wait import InputWait

    counted = _Time()
    wait = InputWait(counted.clock, counted.timestamp)

    def run(making: float, computing: float, steps: int, per_call: int = 1):
        start = counted.now
        ready = [start + making * (number + 1) for number in range(steps)]
        counted.schedule = iter(ready)
        wait.restart()
        batches = iter(wait.stamp(tf.data.Dataset.range(steps), 1))
        for first in range(0, steps, per_call):
            wait.begin()
            for number in range(first, first + per_call):
                next(batches)
                counted.now = max(counted.now, ready[number]) + computing
            wait.end(per_call)
        return wait.share()

    run.wait = wait
    return run


@pytest.mark.parametrize("per_call", [1, 4])
def test_a_step_that_computes_half_as_long_as_its_batch_takes_waits_half(
    share, per_call
):
    found = share(making=0.04, computing=0.02, steps=24, per_call=per_call)
    assert found == pytest.approx(0.5)


@pytest.mark.parametrize("per_call", [1, 4])
def test_batches_ready_in_time_are_not_waited_for(share, per_call):
    found = share(making=0.001, computing=0.02, steps=24, per_call=per_call)
    assert found == pytest.approx(0)


def test_each_fit_begins_with_a_new_iterator(share):
    assert share(making=0.04, computing=0.01, steps=10) == pytest.approx(0.75)
    assert share(making=0.001, computing=0.02, steps=10) == pytest.approx(0)


def test_the_share_is_that_of_the_time_since_it_was_last_asked(share):
    assert share(making=0.04, computing=0.01, steps=10) > 0.5
    assert share.wait.share() is None


def test_only_the_newest_of_very_many_steps_count(share, monkeypatch):
    from strategos.components.trainer.data import input_wait

    monkeypatch.setattr(input_wait, "_REMEMBERED", 16)
    assert share(making=0.02, computing=0.01, steps=30) == pytest.approx(0.5)


@pytest.fixture
def wait():
    from strategos.components.trainer.data.input_wait import InputWait

    return InputWait()


def _share(wait, batches, steps: int):
    wait.restart()
    iterator = iter(batches)
    for _ in range(steps):
        wait.begin()
        next(iterator)
        wait.end()
    return wait.share()


def _numbers():
    import tensorflow as tf

    return tf.data.Dataset.range(10).map(lambda number: (number,))


def test_the_clocks_of_steps_and_batches_are_one(wait):
    import tensorflow as tf

    def slow(number):
        time.sleep(0.05)
        return number

    made = tf.data.Dataset.range(10).map(
        lambda number: tf.numpy_function(slow, [number], tf.int64)
    )
    batches = wait.stamp(made.map(lambda number: (number,)), 1).prefetch(2)
    assert _share(wait, batches, steps=5) > 0.5


def test_reading_a_split_records_when_its_batches_are_ready(workload):
    import tensorflow as tf

    from strategos.components.trainer.data import dataset
    from strategos.components.trainer.data.input_wait import InputWait

    label = tf.io.FixedLenFeature([], tf.int64)
    split = dataset.read(workload.transformed("train"), {"late": label}, "late")
    wait = InputWait(timestamp=lambda: tf.constant(1e12, tf.float64))
    batches = split.shuffled(10, seed=1, epochs=None, wait=wait)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert _share(wait, batches, steps=10) > 0  # in the far future


def test_the_share_is_unknown_with_deterministic_kernels(wait):
    from tensorflow.python.framework import config  # disabling it is not public

    config.enable_op_determinism()
    try:
        assert _share(wait, wait.stamp(_numbers(), 1), steps=3) is None
    finally:
        config.disable_op_determinism()


def test_the_share_is_unknown_without_recorded_batches(wait):
    assert _share(wait, _numbers(), steps=3) is None
