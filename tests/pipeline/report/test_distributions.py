"""Distributions of features from TFDV's statistics, beside numpy and TFDV itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tensorflow_data_validation as tfdv
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.statistics import generators
from strategos.pipeline.report import distributions

SEEDS = st.integers(0, 2**32 - 1)
derandomized = settings(derandomize=True, deadline=None, max_examples=25)


def statistics(values):
    column = pa.array([None if x is None else [x] for x in values])
    return generators.compute([pa.RecordBatch.from_arrays([column], ["x"])])


def feature(values):
    return statistics(values).datasets[0].features[0]


def numbers(seed, of_integers=False):
    random = np.random.default_rng(seed)
    rows, scale = random.integers(30, 3000), 10 ** random.uniform(-2, 3)
    draw = random.choice(["normal", "exponential", "uniform"])
    found = getattr(random, draw)(size=rows) * scale
    if of_integers:
        return random.integers(-3, random.integers(-1, 16), rows)
    return found


@derandomized
@given(SEEDS)
def test_shares_are_those_of_numpy(seed):
    values = numbers(seed)
    found = feature(values.tolist())
    borders = distributions.borders([found])
    shares = distributions.shares(found, borders)
    exact = np.histogram(values.astype(np.float32), borders)[0] / len(values)
    # Both histograms together know ten and ten points of the distribution.
    assert np.abs(np.cumsum(shares) - np.cumsum(exact)).max() < 0.1
    assert sum(shares) == pytest.approx(exact.sum(), abs=0.1)


@derandomized
@given(SEEDS)
def test_integers_of_few_values_have_a_bin_each(seed):
    values = numbers(seed, of_integers=True)
    found = feature(values.tolist())
    borders = distributions.borders([found])
    assert borders == [x - 0.5 for x in range(values.min(), values.max() + 2)]
    shares = distributions.shares(found, borders)
    exact = np.histogram(values, borders)[0] / len(values)
    # TFDV counts by a sketch of the quantiles.
    within = 0.01 if np.ptp(values) < 10 else 0.25
    assert shares == pytest.approx(exact.tolist(), abs=within)


def test_an_outlier_leaves_the_other_numbers_visible():
    values = [*np.linspace(0, 1, 999), 1e9]
    found = feature(values)
    borders = distributions.borders([found])
    assert borders[0] == 0 and borders[-1] < 3
    inside = distributions.shares(found, borders)
    assert 0.9 <= sum(inside) < 0.91  # nothing is known within the last tenth
    assert sum(share > 0.04 for share in inside) == 11


def test_equal_numbers_are_one_bin():
    found = feature([7.0] * 9)
    assert distributions.shares(found, distributions.borders([found])) == [1.0]
    assert distributions.distance(found, found) == 0
    assert distributions.distance(found, feature([7.0, 8.0])) == 1
    assert not distributions.has_numbers(feature([1.0, float("inf")]))


@derandomized
@given(SEEDS, SEEDS)
def test_the_distance_is_the_one_that_tfdv_finds(one, other):
    pairs = [(numbers(one).tolist(), numbers(other).tolist(), schema_pb2.FLOAT)]
    words = np.array(list("abcdefghijkl"))
    drawn = [np.random.default_rng(seed).zipf(2, 200) % 12 for seed in (one, other)]
    texts = (words[each].tolist() for each in drawn)
    pairs.append((*texts, schema_pb2.BYTES))
    for first, second, kind in pairs:
        found = distributions.distance(feature(first), feature(second))
        assert found == pytest.approx(by_tfdv(first, second, kind), abs=1e-6)


def by_tfdv(first, second, kind):
    schema = schema_pb2.Schema()
    comparator = schema.feature.add(name="x", type=kind).drift_comparator
    text = kind == schema_pb2.BYTES
    name = "infinity_norm" if text else "jensen_shannon_divergence"
    getattr(comparator, name).threshold = 0
    result = tfdv.validate_statistics(
        statistics(first), schema, previous_statistics=statistics(second)
    )
    return result.drift_skew_info[0].drift_measurements[0].value


@derandomized
@given(SEEDS, SEEDS)
def test_of_many_values_the_distance_is_no_larger_than_the_exact_one(one, other):
    first, second = (
        (np.random.default_rng(seed).zipf(1.3, 500) % 1000).astype(str).tolist()
        for seed in (one, other)
    )
    found = distributions.distance(feature(first), feature(second))
    exact = max(abs(first.count(x) - second.count(x)) / 500 for x in {*first, *second})
    assert 0 <= found <= exact + 1e-9


def test_the_most_frequent_values_have_their_shares():
    first = feature(["a"] * 5 + ["b"] * 3 + ["c"] * 2)
    second = feature(["b"] * 4 + ["d"] * 6)
    assert distributions.frequent([first, second], 3) == {
        **{"a": [0.5, 0.0], "b": [0.3, 0.4], "d": [0.0, 0.6]},
    }
    many = feature([str(x) for x in range(40)])
    assert distributions.frequent([first, many], 1) == {"a": [0.5, None]}


def test_features_of_other_types_or_without_values_have_no_distance():
    number, text, empty = feature([1.0]), feature(["a"]), feature([None])
    assert distributions.distance(number, text) is None
    assert distributions.distance(text, empty) is None
