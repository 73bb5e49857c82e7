"""Histograms of numbers equal TFDV's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_data_validation import StatsOptions
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.utils import quantiles_util

from strategos.components.statistics import generators, histograms

NUMBERS = st.one_of(
    st.floats(-1e3, 1e3, width=32),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 1e-38, -1e30, 3e38]),
    st.floats(allow_nan=False, allow_infinity=True, width=32),
)


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(st.tuples(NUMBERS, st.integers(0, 9)), min_size=2), st.data())
def test_bins_of_equal_width_are_those_of_tfdv(pairs, data):
    quantiles = np.sort(np.array([value for value, _ in pairs], np.float64))
    counts = np.cumsum([count for _, count in pairs]).astype(np.float64)
    finite = quantiles[np.isfinite(quantiles)]
    least, most = (finite[0], finite[-1]) if len(finite) else (np.inf, -np.inf)
    infinite = float(data.draw(st.integers(1, 3))) if quantiles[-1] == np.inf else 0.0
    buckets = data.draw(st.sampled_from([1, 2, 10]))
    given = quantiles, counts, least, most, buckets, infinite
    theirs = quantiles_util.generate_equi_width_histogram(*given)
    assert histograms.equi_width(*given) == theirs


def columns(seed: int) -> dict[str, list]:
    draw = np.random.default_rng(seed)
    rows = int(draw.choice([1, 2, 17, 400, 3000]))
    odd = draw.normal(size=rows).astype(np.float32)
    odd[draw.random(rows) < 0.3] = draw.choice([np.nan, np.inf, -np.inf, 0.0])
    return {
        "normal": draw.normal(size=rows).astype(np.float32),
        "odd": odd,
        "all_nan": np.full(rows, np.nan, np.float32),
        "huge": (draw.normal(size=rows) * 1e38).astype(np.float32),
        "constant": np.full(rows, 7, np.int64),
        "few": draw.choice([1, 5, 1000], rows),
        "heavy": draw.geometric(0.01, rows) ** 3,
        "skewed": np.where(draw.random(rows) < 0.95, 0, draw.integers(0, 9, rows)),
        "large": draw.integers(-(2**62), 2**62, rows),
    }


@pytest.mark.parametrize("seed", range(8))
def test_statistics_of_a_table_are_those_of_tfdv(seed):
    arrays = {name: pa.array(each.tolist()) for name, each in columns(seed).items()}
    lists = [
        pa.LargeListArray.from_arrays(
            pa.array(range(len(each) + 1), pa.int64()),
            each.cast(pa.float32() if pa.types.is_floating(each.type) else pa.int64()),
        )
        for each in arrays.values()
    ]
    batch = pa.RecordBatch.from_arrays(lists, list(arrays))
    ours = generators.compute([batch])
    theirs = stats_impl.generate_statistics_in_memory(batch, StatsOptions())
    expected = {each.path.step[0]: each for each in theirs.datasets[0].features}
    found = {each.path.step[0]: each for each in ours.datasets[0].features}
    assert found.keys() == expected.keys()
    for name, feature in found.items():
        stats, wanted = feature.num_stats, expected[name].num_stats
        for one, other in zip(stats.histograms, wanted.histograms, strict=True):
            counts = [bucket.sample_count for bucket in one.buckets]
            theirs = [bucket.sample_count for bucket in other.buckets]
            # With NumPy 2, TFDV computes the overlaps of float32 columns in float32.
            most = max(theirs, default=0)
            assert counts == pytest.approx(theirs, rel=1e-5, abs=1e-5 * most)
            for bucket, count in zip(one.buckets, theirs, strict=True):
                bucket.sample_count = count
        assert str(stats) == str(wanted), name  # as text, NaN equals NaN
