"""The first rows of a data file, as a file of the same format."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet
import pytest

from strategos.components.data_files import sources

TEXT = '\ufeffa,b\r\n1,"two\nlines, a ""quote"""\r\n\r\n3,x\r\n4,y\r\n'
FIRST_TWO = '\ufeffa,b\r\n1,"two\nlines, a ""quote"""\r\n\r\n3,x\r\n'


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_rows_of_csv_are_copied_to_the_byte(tmp_path, name):
    pack, unpack = (gzip.compress, gzip.decompress) if "gz" in name else (bytes, bytes)
    path, copy = tmp_path / name, tmp_path / f"copy-{name}"
    path.write_bytes(pack(TEXT.encode()))
    for rows, text in ((2, FIRST_TWO), (9, TEXT)):
        sources.open_source(str(path)).copy_first(rows, str(copy))
        assert unpack(copy.read_bytes()).decode() == text


def test_rows_of_parquet_keep_their_types(tmp_path):
    instants = pa.array([1, None, 10**18 + 1], pa.timestamp("ns"))
    table = pa.table({"a": [[1], None, [2, 3]], "b": ["x", None, "z"], "at": instants})
    path, copy = tmp_path / "rows.parquet", tmp_path / "copy.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=1, version="2.6")
    for rows in (2, 9):
        sources.open_source(str(path)).copy_first(rows, str(copy))
        assert pyarrow.parquet.read_table(copy).equals(table.slice(0, rows))
