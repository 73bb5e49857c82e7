"""Encoding of Arrow columns as tf.Examples."""

from __future__ import annotations

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
