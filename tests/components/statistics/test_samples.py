"""Samples of numbers: of any row alike, however the rows are cut."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest


def _sample(parts):
    from strategos.components.statistics import generators, samples

    found = generators.empty(10)
    for part in parts:
        column = pa.array([None if x is None else [x] for x in part])
        batch = pa.RecordBatch.from_pydict({"x": column})
        found = generators.merged(found, generators.accumulated([batch], 10), 10)
    (feature,) = generators.extracted(found, 10).datasets[0].features
    return samples.of_feature(feature)


def test_few_numbers_are_all_kept_and_missing_or_infinite_ones_are_not():
    numbers = [3.5, None, float("nan"), -1.0, float("inf"), 3.5]
    assert _sample([numbers, [7.0]]).tolist() == [-1.0, 3.5, 3.5, 7.0]


@pytest.mark.parametrize("cuts", [[], [1000], [5000, 15000]])
def test_of_many_numbers_each_is_as_likely_as_any_other(cuts):
    numbers = np.arange(20_000)
    sample = _sample([each.tolist() for each in np.split(numbers, cuts)])
    assert len(set(sample)) == len(sample) and 500 <= len(sample) <= 532
    assert (sample[:16] == numbers[:16]).all() and (sample[-16:] == numbers[-16:]).all()
    shares = np.histogram(sample[16:-16], 10, (0, 20_000))[0] / len(sample[16:-16])
    assert np.abs(shares - 0.1).max() < 0.055  # four standard errors
    again = _sample([each.tolist() for each in np.split(numbers, cuts)])
    assert (again == sample).all()
