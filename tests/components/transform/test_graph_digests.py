"""Digests of what a graph computes: equal for equal computations, and only for them."""

from __future__ import annotations

import itertools

import pytest
import tensorflow as tf

from strategos.components.transformed.feature_ids import Digests


def of_cond(computed):
    return lambda a, b: tf.cond(tf.reduce_sum(a) > 0, lambda: computed(a, b), lambda: a)


def nested(computed):
    return of_cond(lambda a, b: tf.cond(b[0] > 0, lambda: computed(a, b), lambda: b))


def of_loop(computed):
    def repeated(a, b):
        return tf.while_loop(lambda x: x[0] < 9, lambda x: (computed(x, b),), (a,))[0]

    return repeated


def of_case(computed):
    return lambda a, b: tf.switch_case(
        tf.cast(b[0], tf.int32), [lambda: a, lambda: computed(a, b), lambda: b]
    )


COMPUTATIONS = {
    "a - b": lambda a, b: a - b,
    "b - a": lambda a, b: b - a,
    "a - a": lambda a, b: a - a,
    "(a - b) * a": lambda a, b: (a - b) * a,
    "(a - b) * b": lambda a, b: (a - b) * b,
    "a + 1": lambda a, b: a + 1.0,
    "a + 2": lambda a, b: a + 2.0,
}


def digest(function):
    """The digest of a function's result, traced anew."""
    spec = tf.TensorSpec([3], tf.float32)
    graph = tf.function(function).get_concrete_function(spec, spec).graph
    names = {each.op.name: f"input {i}" for i, each in enumerate(graph.inputs)}
    (output,) = graph.outputs
    return Digests(graph, names).of(output)


@pytest.mark.parametrize("within", [lambda x: x, of_cond, nested, of_loop, of_case])
def test_digests_differ_as_the_computations_do(within):
    digests = {name: digest(within(each)) for name, each in COMPUTATIONS.items()}
    again = {name: digest(within(each)) for name, each in COMPUTATIONS.items()}
    assert digests == again
    for one, other in itertools.combinations(digests, 2):
        assert digests[one] != digests[other], (one, other)
