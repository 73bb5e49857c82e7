"""Encoding of Arrow columns as tf.Examples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from strategos.components.records import encode

LONG = [b"x" * 127, b"x" * 128]
TEXTS = [b"", b"JFK", "żółć 日本".encode(), b"\xff\x00", *LONG]


@pytest.mark.parametrize("last", [[b"one"], [b"two", b""], [], None])
def test_text_has_the_same_bytes_whatever_other_rows_of_its_column_have(last):
    rows = [*([text] for text in TEXTS), last]
    column = pa.array(rows, pa.list_(pa.binary()))
    batch = pa.RecordBatch.from_arrays([column], ["from"])
    encoded = encode.serialize(batch).to_pylist()
    parsed = [tf.train.Example.FromString(each) for each in encoded]
    found = [list(each.features.feature["from"].bytes_list.value) for each in parsed]
    assert found == [row or [] for row in rows]
    assert encoded[:-1] == encode.serialize(batch.slice(0, len(TEXTS))).to_pylist()
    assert encode.serialize(batch.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize("without", [(), ("many", "number")])
def test_rows_have_the_same_bytes_in_a_batch_of_any_size(without):
    """In a large batch rows are copies of templates, in a small one joined pieces."""
    rows, draw = 10_000, np.random.default_rng(1)
    lengths = {"few": draw.integers(0, 4, rows), "many": draw.integers(0, 300, rows)}
    texts = {name: [b"x" * n for n in found] for name, found in lengths.items()}
    numbers = draw.integers(-(2**62), 2**62, rows) >> draw.integers(0, 62, rows)
    pairs = draw.normal(size=(rows, 2)).astype(np.float32)
    values = {
        "small": ([[n] for n in draw.integers(0, 200, rows)], pa.int64()),
        "pair": (pairs.tolist(), pa.float32()),
        "missing": ([[0.5] if n else None for n in lengths["few"]], pa.float32()),
        "few": ([[text] for text in texts["few"]], pa.binary()),
        "many": ([[text] for text in texts["many"]], pa.binary()),
        "number": ([[n] for n in numbers], pa.int64()),
        "list": ([[7] * n for n in lengths["few"]], pa.int64()),
        "void": ([None] * rows, pa.binary()),
    }
    batch = pa.RecordBatch.from_pydict(
        {
            name: pa.array(rows, pa.list_(kind))
            for name, (rows, kind) in values.items()
            if name not in without
        }
    )
    encoded = encode.serialize(batch).to_pylist()
    slices = [batch.slice(first, 100) for first in range(0, rows, 100)]
    assert encoded == [r for part in slices for r in encode.serialize(part).to_pylist()]
    some = batch.take(pa.array(range(0, rows, 50))).to_pylist()
    for expected, example in zip(some, encoded[::50], strict=True):
        feature = tf.train.Example.FromString(example).features.feature
        assert feature.keys() == expected.keys()
        for name, value in expected.items():
            kind = feature[name].WhichOneof("kind")
            found = list(getattr(feature[name], kind).value) if kind else None
            assert found == value, name
