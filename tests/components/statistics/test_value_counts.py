"""Counts of text values: exact or within their error, small, equal for any cut."""

from __future__ import annotations

import collections
import itertools
import pickle
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.statistics import value_counts
from strategos.components.statistics.value_counts import UNIQUE_ERROR, ValueCounts

WORDS = st.lists(
    st.one_of(
        st.binary(max_size=6), st.sampled_from([b"", b"a", "ü".encode(), b"\xff"])
    ),
    max_size=40,
)
derandomized = settings(derandomize=True, deadline=None, max_examples=50)


def counted(words, batch=1000):
    found = ValueCounts()
    for start in range(0, len(words), batch):
        found.add(pa.array(words[start : start + batch], pa.large_binary()))
    return found


def merged(words, cuts, draw):
    """Parts that went to workers, merged in the order that `draw` says."""
    ends = [0, *sorted(min(cut, len(words)) for cut in cuts), len(words)]
    parts = [counted(words[a:b], batch=3) for a, b in itertools.pairwise(ends)]
    while len(parts) > 1:
        i = draw(len(parts) - 2)
        ours, theirs = (pickle.loads(pickle.dumps(part)) for part in parts[i : i + 2])
        ours.merge(theirs)
        parts[i : i + 2] = [ours]
    return parts[0]


@derandomized
@given(words=WORDS, cuts=st.lists(st.integers(0, 40), max_size=5), data=st.data())
def test_counts_are_exact_for_any_cut_and_order_of_merging(words, cuts, data):
    found = merged(words, cuts, lambda last: data.draw(st.integers(0, last)))
    expected = collections.Counter(words)
    ranked = sorted(((count, word) for word, count in expected.items()), reverse=True)
    assert found.unique() == len(expected) and not found.error
    assert list(found.top(100)) == [(word, count) for count, word in ranked]


@derandomized
@given(words=WORDS, cuts=st.lists(st.integers(0, 40), max_size=5), data=st.data())
def test_counts_of_too_many_values_are_within_their_error(words, cuts, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_counts, "EXACT_VALUES", 4)
        found = merged(words, cuts, lambda last: data.draw(st.integers(0, last)))
        unique, top = found.unique(), list(found.top(100))
    expected = collections.Counter(words)
    assert (found.error > 0) == (len(expected) > 4)
    assert unique == len(expected)  # below the number of hashes
    for word, count in top:
        assert count <= expected[word] <= count + found.error
    shown = {word for word, _ in top}
    for word, count in expected.items():
        assert word in shown or count <= 2 * found.error


def test_ids_that_grow_with_the_rows_take_no_more_memory():
    """Two frequent values among a million ids are found, with their counts."""
    draw = random.Random(3)
    found = ValueCounts()
    for start in range(0, 1_000_000, 100_000):
        words = [b"id%d" % i for i in range(start, start + 100_000)]
        for place, i in enumerate(draw.sample(range(100_000), 25_000)):
            words[i] = b"unknown" if place < 20_000 else b""
        later = counted(words, batch=10_000)
        later.compact()
        found.merge(pickle.loads(pickle.dumps(later)))
    found.compact()
    assert len(pickle.dumps(found)) < 8_000_000
    (first, many), (second, some), *others = found.top(20)
    assert (first, second) == (b"unknown", b"") and not others
    assert many <= 200_000 <= many + found.error < 200_020
    assert some <= 50_000 <= some + found.error
    assert found.unique() == pytest.approx(750_002, rel=4 * UNIQUE_ERROR)


def test_long_texts_take_no_more_memory_than_short_ones():
    draw = random.Random(1)
    found = ValueCounts()
    for _ in range(60):
        words = [draw.randbytes(50_000) for _ in range(20)] + [b"spam"] * 5
        found.add(pa.array(words, pa.large_binary()))
    found.compact()
    assert len(pickle.dumps(found)) < 1.1 * value_counts.EXACT_BYTES
    assert list(found.top(2)) == [(b"spam", 300)]
    assert found.unique() == 1201
