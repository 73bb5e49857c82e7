"""Counts of tokens, in memory and on disk."""

from __future__ import annotations

import collections
import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow_transform.analyzer_nodes import VocabularyOrderAndWrite

from strategos.components import events
from strategos.components.transform.analyzers import (
    accumulators,
    counts,
    spilled,
    tft_private,
)

WORDS = [b"a", b"b", b"\xc3\xa9t\xc3\xa9", b"c d", b"", b"line\nend", b"zz"]


@pytest.mark.long
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 9)))),
    st.booleans(),
    st.booleans(),
)
def test_counts_are_exact_however_the_rows_are_cut(
    tmp_path, batches, is_weighted, on_disk
):
    total = collections.Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_LINES", 3)  # sums up early, and writes in pieces
        patch.setattr(spilled, "_LEAST", 0 if on_disk else 1 << 20)
        kind = accumulators.Counted(spilled.Bounds(str(tmp_path), 0))
        parts = [kind.new(), kind.new()]
        for number, batch in enumerate(batches):
            read = [tf.constant([token for token, _ in batch], tf.string)]
            if is_weighted:
                read.append(tf.constant([n / 4 for _, n in batch], tf.float32))
            kind.add(parts[number % 2], tuple(read))
            for token, n in batch:
                total[token] += n / 4 if is_weighted else 1
        first, last = map(kind.compact, parts)
        found = kind.merge(first, pickle.loads(pickle.dumps(last))).total(str(tmp_path))
        assert isinstance(found, spilled.Ranked) == bool(on_disk and total)
        pairs = list(counts._pairs(found))
        assert sorted(pairs) == sorted((n, token) for token, n in total.items())
        columns = counts._columns(found)
        lines = [line for some in counts._lines(columns, True) for line in some]
    assert lines == [f"{n} {token.decode()}".encode() for n, token in pairs]


@pytest.mark.long
def test_tokens_that_grow_with_the_rows_take_bounded_memory(tmp_path):
    """1M different tokens, of which 16k are in memory at a time."""
    kind = accumulators.Counted(spilled.Bounds(str(tmp_path), 0))
    state, most, start = kind.new(), 0, pa.total_allocated_bytes()
    for batch in range(50):
        numbers = np.arange(batch * 20_000, (batch + 1) * 20_000)
        state.add(pa.array([b"token %d" % n for n in numbers], pa.large_binary()))
        most = max(most, pa.total_allocated_bytes() - start)
    found = state.total(str(tmp_path)).pruned(0, 10)
    assert [token for _, token in found] == sorted(
        (b"token %d" % n for n in range(1_000_000)), reverse=True
    )[:10]
    assert most < 8 << 20


def test_tokens_of_the_same_letters_are_spread_over_all_parts():
    """Each part has 630 of the 40,320 orders of eight letters on average."""
    orders = map(bytes, itertools.permutations(b"abcdefgh"))
    tokens = pa.array(orders, pa.large_binary())
    parts = spilled._parts(tokens)
    counted = np.bincount(parts.astype(np.int64), minlength=spilled.PARTS)
    assert counted.min() > 500
    assert counted.max() < 760
    middle = slice(9_999, 30_001)
    assert (spilled._parts(tokens[middle]) == parts[middle]).all()


def test_adding_up_and_writing_a_large_vocabulary_are_reported(tmp_path, monkeypatch):
    """After the last row, a vocabulary on disk takes longest."""
    monkeypatch.setattr(events, "PROGRESS_SECONDS", 0)
    monkeypatch.setattr(spilled, "_LEAST", 0)
    kind = accumulators.Counted(spilled.Bounds(str(tmp_path), 0))
    state = kind.new()
    state.add(pa.array([b"%d" % n for n in range(70_000)], pa.large_binary()))
    events.open_sink(str(tmp_path / "events"), node="Transform")
    try:
        operation = VocabularyOrderAndWrite("words", False, False, "text")
        counts.write(state.total(str(tmp_path)), operation, None, str(tmp_path))
    finally:
        events.open_sink(None)
    said = (tmp_path / "events").read_text()
    assert "adding up counts on disk: part 64 of 64" in said
    assert "writing words: 65,536 tokens" in said
    assert "writing words: 70,000 tokens" in said


def test_labels_of_tokens_that_grow_with_the_rows_take_bounded_memory(tmp_path):
    """20,000 different tokens, of which 3,000 are in memory at a time."""
    kinds, bounds = tft_private.ordering, spilled.Bounds(str(tmp_path), 0)
    kind = accumulators.of_vocabulary(kinds.MUTUAL_INFORMATION, bounds)
    state, most = kind.new(), 0
    for batch in range(20):
        tokens = [b"token %d" % n for n in range(batch * 1_000, (batch + 1) * 1_000)]
        tokens[-1] = tft_private.SENTINELS[0]
        means = np.tile([[0.25, 0.75]], (1_000, 1))
        counted = np.full((1_000, 2), 4.0)
        kind.add(state, (np.array(tokens, object), means, counted))
        most = max(most, len(state.held))
    assert most < 3_000 and state.on_disk
    states = pickle.loads(pickle.dumps(state))
    mean = tft_private.WeightedMean((None,), compute_weighted=False)
    found = [token for part in states.parts(mean) for token in part]
    assert len(found) == len(set(found)) == 20 * 999 + 1
