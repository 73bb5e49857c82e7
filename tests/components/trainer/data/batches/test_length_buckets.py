"""Batches of rows of similar length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.trainer.data import dataset
from strategos.components.trainer.data.batches import length_buckets

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=400)


def _expected(order, lengths, size):
    """The batches, in no order, and the rows that do not fill one."""
    whole = len(order) // size * size
    batches = []
    for start in range(0, whole, 50 * size):
        window = order[start : min(start + 50 * size, whole)]
        rows = sorted(window, key=lambda row: lengths[row])
        batches += [tuple(rows[i : i + size]) for i in range(0, len(rows), size)]
    return sorted(batches), list(order[whole:])


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(0, 9))
def test_each_window_is_sorted_and_cut_into_batches(lengths, size, seed):
    import tensorflow as tf

    order = np.random.default_rng(seed).permutation(len(lengths))
    result = length_buckets.sorted_batches(
        tf.constant(order), tf.constant(lengths, tf.int64), size, [seed, 0]
    ).numpy()
    batches, rest = _expected(order, lengths, size)
    found = [tuple(result[i : i + size]) for i in range(0, len(batches) * size, size)]
    assert sorted(found) == batches
    assert list(result[len(batches) * size :]) == rest


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A split with 1 to 40 words in each row, in a random order."""
    import tensorflow as tf

    file = str(tmp_path_factory.mktemp("texts") / "data-0")
    with tf.io.TFRecordWriter(file) as writer:
        for row, length in enumerate(np.random.default_rng(1).permutation(403)):
            example = tf.train.Example()
            example.features.feature["row"].int64_list.value.append(row)
            words = [row] * (1 + length % 40)
            example.features.feature["words"].int64_list.value.extend(words)
            writer.write(example.SerializeToString())
    spec = {
        "words": tf.io.VarLenFeature(tf.int64),
        "row": tf.io.FixedLenFeature([1], tf.int64),
    }
    return [file], spec


@pytest.fixture(scope="module")
def bucketed(texts):
    import dataclasses

    return dataclasses.replace(dataset.read(*texts, "row"), bucketed_by="words")


def _rows(feed):
    return [label.numpy().ravel().tolist() for _, label in feed]


def test_an_epoch_has_each_row_once_and_little_padding(texts, bucketed):
    def padding(split):
        batches = list(split.shuffled(8, seed=1, epochs=1))
        shown = sum(int(np.prod(features["words"].shape)) for features, _ in batches)
        words = sum(int(features["words"].values.shape[0]) for features, _ in batches)
        return shown / words

    batches = _rows(bucketed.shuffled(8, seed=1, epochs=1))
    assert sorted(row for batch in batches for row in batch) == [*range(403)]
    assert padding(bucketed) < 1.1 < 1.7 < padding(dataset.read(*texts, "row"))


def test_the_order_is_that_of_the_seed_for_any_start_and_replicas(bucketed):
    whole = _rows(bucketed.shuffled(8, seed=1, epochs=2))
    assert _rows(bucketed.shuffled(8, seed=1, epochs=2)) == whole
    assert _rows(bucketed.shuffled(8, seed=2, epochs=2)) != whole
    assert whole[:51] != whole[51:]
    started = _rows(bucketed.shuffled(8, seed=1, epochs=2, first_step=60))
    assert started == whole[60:]
    halves = _rows(bucketed.shuffled(8, seed=1, epochs=2, replicas=2, share=range(2)))
    assert [a + b for a, b in zip(halves[::2], halves[1::2], strict=True)] == whole


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("word", "returns no such feature.*Did you mean `words`"),
        ("row", "every row has as many values"),
    ],
)
def test_a_feature_without_lengths_is_rejected(texts, feature, message):
    with pytest.raises(UserError, match=f"(?s)trainer.bucket_by.*{message}"):
        length_buckets.check(feature, texts[1])


def test_examples_that_are_streamed_are_rejected(texts):
    split = dataset.read(*texts, "row", cache_limit=1000)
    with pytest.raises(UserError, match=r"trainer\.cache_limit"):
        length_buckets.check_memory(split.columns)
