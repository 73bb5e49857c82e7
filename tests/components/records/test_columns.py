"""The columns that are written beside examples."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strategos.components.records import columns


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
