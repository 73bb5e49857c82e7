"""Batches of raw examples that are read only when they are used."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.records import columns
from strategos.components.transform import raw

NEEDED = ["absent", "number", "text"]
ROWS = 30_000  # of which some thousands are in each batch of a file


@pytest.fixture
def schema():
    schema = schema_pb2.Schema()
    for name, kind in {"number": "INT", "other": "FLOAT", "text": "BYTES"}.items():
        schema.feature.add(name=name, type=kind)
    schema.feature.add(name="absent", type="FLOAT")
    return raw.complete(schema)


@pytest.fixture
def file(tmp_path):
    """A file of columns: with a missing value, none, and several in a row."""
    rows = range(ROWS)
    texts = [[b"a", b"bc"][: n % 3] for n in rows]
    found = {
        "number": pa.array([[n] if n % 7 else None for n in rows]),
        "other": pa.array([[n / 2] for n in rows], pa.list_(pa.float32())),
        "text": pa.array(texts, pa.list_(pa.binary())),
    }
    batch = pa.RecordBatch.from_pydict(found)
    writer = columns.ColumnWriter(str(tmp_path), 0)
    for begin in range(0, ROWS, 1000):
        writer.write(columns.compact(batch.slice(begin, 1000), {"text"}))
    (name,) = writer.close().files
    (path,) = tmp_path.rglob(name)
    return str(path.rename(tmp_path / "columns.arrow"))


def test_lazy_batches_equal_those_read_at_once_also_after_pickling(file, schema):
    expected = list(raw.batches(file, schema, NEEDED))
    lazy = list(raw.lazy_batches(file, schema, NEEDED))
    moved = [pickle.dumps(each) for each in lazy]
    assert len(expected) > 2
    assert max(map(len, moved)) < 2000 < expected[0].nbytes
    for some in (lazy, map(pickle.loads, moved)):
        for batch, other in zip(expected, some, strict=True):
            assert (batch.num_rows, len(batch)) == (other.num_rows, len(other))
            assert batch.schema.equals(other.schema)
            for index, column in enumerate(batch.columns):
                assert column.equals(other.column(index))


def test_lazy_batch_of_a_file_that_is_gone_names_it(file, schema, tmp_path):
    (first, *_) = map(pickle.dumps, raw.lazy_batches(file, schema, NEEDED))
    (tmp_path / "columns.arrow").unlink()
    with pytest.raises(Exception, match="columns.arrow"):
        _ = pickle.loads(first).num_rows
