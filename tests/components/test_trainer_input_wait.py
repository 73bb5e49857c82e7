from __future__ import annotations

import time

import pytest


@pytest.fixture
def wait():
    from strategos.components.trainer.input_wait import InputWait

    return InputWait()


def _feed(wait, seconds: float):
    """Batches that take so long to make."""
    import tensorflow as tf

    def slow(number):
        time.sleep(seconds)
        return number

    def batch(number):
        return (tf.numpy_function(slow, [number], tf.int64), number)

    return wait.stamp(tf.data.Dataset.range(1000).map(batch), 1).prefetch(2)


def _shares(wait, batches, seconds: float, steps: int, per_call: int = 1):
    """Share of waiting when each step computes for so long."""
    wait.restart()
    iterator = iter(batches)
    for _ in range(0, steps, per_call):
        wait.begin()
        for _ in range(per_call):
            next(iterator)
            time.sleep(seconds)
        wait.end(per_call)
    return wait.share()


@pytest.mark.parametrize("per_call", [1, 4])
def test_a_step_that_computes_half_as_long_as_its_batch_takes_waits_half(
    wait, per_call
):
    share = _shares(wait, _feed(wait, 0.04), 0.02, steps=24, per_call=per_call)
    assert share == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("per_call", [1, 4])
def test_batches_that_are_there_in_time_are_not_waited_for(wait, per_call):
    share = _shares(wait, _feed(wait, 0.001), 0.02, steps=24, per_call=per_call)
    assert share < 0.1


def test_each_fit_begins_with_a_new_iterator(wait):
    slow, fast = _feed(wait, 0.04), _feed(wait, 0.001)
    assert _shares(wait, slow, 0.005, steps=10) > 0.5
    assert _shares(wait, fast, 0.02, steps=10) < 0.1


def test_the_share_is_that_of_the_time_since_it_was_last_asked(wait):
    assert _shares(wait, _feed(wait, 0.02), 0.001, steps=10) > 0.5
    assert wait.share() is None


def test_only_the_newest_of_very_many_steps_count(wait, monkeypatch):
    from strategos.components.trainer import input_wait

    monkeypatch.setattr(input_wait, "_REMEMBERED", 16)
    share = _shares(wait, _feed(wait, 0.02), 0.01, steps=30)
    assert share == pytest.approx(0.5, abs=0.2)


def test_reading_a_split_tells_when_its_batches_are_there(wait, workload):
    import tensorflow as tf

    from strategos.components.trainer import dataset

    label = tf.io.FixedLenFeature([], tf.int64)
    split = dataset.read(workload.transformed("train"), {"late": label}, "late")
    batches = split.shuffled(10, seed=1, epochs=None, wait=wait)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY
    assert _shares(wait, batches, 0.02, steps=10) < 0.1


def test_nothing_is_said_where_only_deterministic_kernels_are_allowed(wait):
    from tensorflow.python.framework import config  # disabling it is not public

    config.enable_op_determinism()
    try:
        assert _shares(wait, _feed(wait, 0.001), 0.001, steps=3) is None
    finally:
        config.disable_op_determinism()


def test_nothing_is_said_of_batches_that_were_not_noted(wait):
    import tensorflow as tf

    assert _shares(wait, tf.data.Dataset.range(10), 0.001, steps=3) is None
