"""What chance explains of a distance: beside scipy, TFDV, and by simulation."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

LEVEL = 0.01
"""The level that is stated, see `checks.LEVEL`."""

TEXTS = {
    "four": lambda random, rows: random.choice(list("abcd"), rows),
    "rare": lambda random, rows: random.choice(list("ab"), rows, p=[0.95, 0.05]),
    "tail": lambda random, rows: np.minimum(random.zipf(1.3, rows), 10**6).astype(str),
    "ids": lambda random, rows: random.integers(0, 10**9, rows).astype(str),
    "cells": lambda random, rows: random.integers(0, 300, rows).astype(str),
}
NUMBERS = {
    "normal": lambda random, rows: random.normal(size=rows),
    "skewed": lambda random, rows: random.lognormal(0, 1, rows),
    "heavy": lambda random, rows: random.pareto(1.5, rows),
    "few": lambda random, rows: random.poisson(2, rows),
    "steps": lambda random, rows: np.round(random.normal(size=rows) * 2) / 4,
    "flag": lambda random, rows: (random.random(rows) < 0.1).astype(int),
    "error": lambda random, rows: np.where(random.random(rows) < 0.003, 1e4, 1.5),
}


@pytest.fixture
def judged():
    """Whether each feature of a pair of samples is judged as drift beyond a bound."""
    from strategos.components.span_validator import checks, measure
    from strategos.components.statistics import generators

    def statistics(features):
        arrays = {n: pa.array([[x] for x in v.tolist()]) for n, v in features.items()}
        batch = pa.RecordBatch.from_pydict(arrays)
        return generators.extracted(
            generators.accumulated([batch], measure.RANKED), measure.RANKED
        )

    def call(now, other, bound):
        both = statistics(now), statistics(other)
        limits = dict.fromkeys(now, bound)
        found = checks.distances(*both, limits)
        chance = checks.beyond_chance(*both, found, limits)
        return {name: found[name] > max(bound, chance.get(name, 0)) for name in found}

    return call


def _pair(kinds, seed, rows, others):
    random = np.random.default_rng(seed)
    return (
        {name: make(random, rows) for name, make in kinds.items()},
        {name: make(random, others) for name, make in kinds.items()},
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_tail_of_a_count_is_the_hypergeometric_one_from_above(seed):
    from scipy.stats import hypergeom

    from strategos.components.span_validator import by_chance

    random = np.random.default_rng(seed)
    rows, others = random.integers(5, 500, 2)
    counts = random.integers(1, rows + others, 8).astype(float)
    law = hypergeom(rows + others, counts.astype(int), rows)
    least = np.ceil(law.mean() + random.uniform(0.5, 4, 8) * law.std())
    exact = law.sf(least - 1)
    found = by_chance._tail(least, counts, rows, others)
    assert (found >= exact * (1 - 1e-6)).all()
    small = (exact > 1e-12) & (exact < 0.01)
    assert (found[small] <= exact[small] * 1.5).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_divergence_of_histograms_is_that_of_tfdv(seed):
    import tensorflow_data_validation as tfdv
    from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

    from strategos.components.span_validator import by_chance

    def statistics(numbers):
        found = statistics_pb2.DatasetFeatureStatisticsList()
        data = found.datasets.add(num_examples=len(numbers))
        feature = data.features.add(type=statistics_pb2.FeatureNameStatistics.FLOAT)
        feature.path.step.append("x")
        common = feature.num_stats.common_stats
        common.num_non_missing = common.tot_num_values = len(numbers)
        common.min_num_values = common.max_num_values = 1
        counts, bounds = np.histogram(numbers, 10)
        buckets = feature.num_stats.histograms.add().buckets
        for low, high, count in zip(bounds[:-1], bounds[1:], counts, strict=True):
            buckets.add(low_value=low, high_value=high, sample_count=count)
        return found

    random = np.random.default_rng(seed)
    rows = random.integers(2, 400, 2)
    one, other = (random.normal(m, 1 + m, n) for m, n in zip((0, 1), rows, strict=True))
    schema = schema_pb2.Schema()
    comparator = schema.feature.add(name="x", type="FLOAT").drift_comparator
    comparator.jensen_shannon_divergence.threshold = 0.0
    result = tfdv.validate_statistics(
        statistics(one), schema, previous_statistics=statistics(other)
    )
    wanted = result.drift_skew_info[0].drift_measurements[0].value
    pair = [
        by_chance._Histograms(np.sort(each), np.ones((1, len(each)), int))
        for each in (one, other)
    ]
    assert by_chance.divergence(*pair) == pytest.approx([wanted], abs=1e-9)


def test_equal_numbers_are_apart_from_all_others():
    from strategos.components.span_validator import by_chance

    numbers = np.array([1.0, 2.0, 3.0])
    ones = np.array([[0, 2, 0], [0, 2, 0], [0, 2, 0]])
    others = np.array([[0, 1, 0], [0, 0, 2], [1, 0, 1]])
    pair = [by_chance._Histograms(numbers, counts) for counts in (ones, others)]
    assert by_chance.divergence(*pair).tolist() == [0, 1, 1]


def test_ten_features_of_four_values_in_spans_of_100_rows_rarely_alarm(judged):
    kinds = {f"f{i}": TEXTS["four"] for i in range(10)}
    spans = [judged(*_pair(kinds, seed, 100, 100), 0.1) for seed in range(40)]
    assert sum(any(span.values()) for span in spans) <= 2  # 96 % without the test


@pytest.mark.parametrize("rows", [50, 200, 1000])
def test_a_share_that_moves_is_found_as_by_the_chi_square_test(judged, rows):
    from scipy.stats import chi2_contingency

    found, theirs = 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        now = random.choice(list("ab"), rows, p=[0.75, 0.25])
        other = random.choice(list("ab"), rows, p=[0.5, 0.5])
        found += judged({"x": now}, {"x": other}, 0.1)["x"]
        table = [[(x == v).sum() for v in "ab"] for x in (now, other)]
        theirs += chi2_contingency(table).pvalue < LEVEL
    assert found >= theirs - 6


@pytest.mark.long
@pytest.mark.parametrize(("rows", "others"), [(12, 500), (100, 120), (1500, 1500)])
@pytest.mark.parametrize("kind", sorted(TEXTS | NUMBERS))
def test_samples_of_one_distribution_alarm_as_rarely_as_stated(
    judged, kind, rows, others
):
    pairs = 150
    kinds = {kind: (TEXTS | NUMBERS)[kind]}
    alarms = 0
    for seed in range(pairs):
        (alarm,) = judged(*_pair(kinds, seed, rows, others), 0.02).values()
        alarms += alarm
    assert alarms <= LEVEL * pairs + 3 * np.sqrt(LEVEL * pairs)


@pytest.mark.long
@pytest.mark.parametrize("rows", [100, 300, 1000])
def test_numbers_that_move_are_found_beside_the_test_of_kolmogorov(judged, rows):
    from scipy.stats import ks_2samp

    found, theirs = 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        now, other = random.normal(1.0, 1, rows), random.normal(0, 1, rows)
        found += judged({"x": now}, {"x": other}, 0.05)["x"]
        theirs += ks_2samp(now, other).pvalue < LEVEL
    assert found >= theirs - 8
