"""The columns that are written beside examples."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.errors import UserError
from strategos.components.records import columns, streams
from strategos.components.records.write import publish


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [7, None, -(2**63), 0, None]),
        (pa.float32(), [None, 0.5, None, None, -1.0]),
        (pa.binary(), [b"", None, b"abc", b"\xff", None]),
        (pa.binary(), [None] * 5),
    ],
)
@pytest.mark.parametrize("rows", [slice(0, 5), slice(1, 4), slice(2, 2)])
def test_compact_has_each_rows_value_and_null_where_it_is_missing(kind, values, rows):
    lists = [None if value is None else [value] for value in values]
    column = pa.array(lists, pa.list_(kind))[rows]
    batch = pa.RecordBatch.from_arrays([column], ["feature"])
    flat = columns.compact(batch, lists=()).column(0)
    assert flat.type == kind
    assert flat.to_pylist() == values[rows]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file of three batches: its path, and its content."""
    folder = tmp_path_factory.mktemp("columns")
    writer = columns.ColumnWriter(str(folder), 0)
    values = np.random.default_rng(1).normal(size=20_000).astype(np.float32)
    for start in range(0, len(values), 500):
        column = pa.array(values[start : start + 500])
        writer.write(pa.RecordBatch.from_arrays([column], ["x"]))
    (name,) = writer.close().files
    (path,) = folder.rglob(name)
    return str(path), path.read_bytes()


def test_rows_of_one_shard_fill_several_files_in_order(tmp_path, monkeypatch):
    """As of a large `.gz`, which ExampleGen reads as one shard."""
    monkeypatch.setattr(columns, "_FILE_BYTES", 100_000)
    writer = columns.ColumnWriter(str(tmp_path), 3)
    values = np.arange(100_000, dtype=np.float32)
    for part in np.array_split(values, 70):
        writer.write(pa.RecordBatch.from_arrays([pa.array(part)], ["x"]))
    written = writer.close()
    assert len(written.files) == 4
    assert written.rows == len(values)
    publish(str(tmp_path), streams.folder("train"), written, "columns", streams.SUFFIX)
    files = columns.files(str(tmp_path), "train")
    batches = [batch.column(0).flatten().to_numpy() for batch in columns.read(files)]
    np.testing.assert_array_equal(np.concatenate(batches), values)


def test_the_schema_has_a_checksum_of_its_own(written):
    _, content = written
    count, _ = streams._END.unpack(content[-streams._END.size :])
    assert count == 4  # with three batches


def rows_by_batch(path):
    return sum(batch.num_rows for batch in columns.read([path]))


def rows_by_message(path):
    stored = pickle.loads(pickle.dumps(list(columns.stored_batches(path))))
    return sum(batch.read().num_rows for batch in stored)


@pytest.mark.parametrize("rows", [rows_by_batch, rows_by_message])
def test_batches_have_checksums_which_arrow_itself_does_not_see(written, rows):
    path, content = written
    assert rows(path) == 20_000
    with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
        assert len(list(stream)) == 3
    older = Path(path).with_name("older")
    older.write_bytes(content[: content.rindex(b"\xff\xff\xff\xff") + 8])
    assert rows(str(older)) == 20_000  # before checksums were written


@settings(max_examples=80, deadline=None)
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7))
@pytest.mark.parametrize("rows", [rows_by_batch, rows_by_message])
def test_a_flipped_bit_is_an_error_with_the_files_name(written, rows, place, bit):
    path, content = written
    end = content.rindex(b"\xff\xff\xff\xff")  # of the last batch
    damaged = bytearray(content)
    damaged[place % end] ^= 1 << bit
    other = Path(path).with_name("damaged")
    other.write_bytes(damaged)
    with pytest.raises(UserError, match=rf"(?s){other} is damaged: .*--no-cache"):
        rows(str(other))
