"""Files whose content contradicts their name: each message names the remedy."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.data_files import formats, sources, spans
from strategos.components.errors import BadInputError, UserError

CSV = b"x,y\n1,2\n3,4\n"


def gzipped(content):
    """Compresses by gzip without a time stamp: the names of tests contain the bytes."""
    return gzip.compress(content, mtime=0)


def zipped(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, CSV)
    return file.getvalue()


def parquet():
    file = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2]}), file)
    return file.getvalue()


def refused(path):
    with pytest.raises(UserError) as caught:
        source = sources.open_source(str(path))
        list(source.batches())
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", gzipped(CSV), "is compressed by gzip, not CSV. Let its name"),
        ("a.csv", zipped("a.csv"), "is a ZIP archive or an Excel workbook, not CSV."),
        ("a.csv", parquet(), "is a Parquet file, not CSV. Let its name end in .parq"),
        (
            "a.csv",
            bz2.compress(CSV),
            "is compressed by bz2, not CSV. Let its name end in .csv.bz2",
        ),
        ("a.csv", lzma.compress(CSV), "is compressed by xz, not CSV. Unpack it."),
        (
            "a.csv",
            CSV.decode().encode("utf-16"),
            "is UTF-16 text, not UTF-8. Set `data.csv: {encoding: utf-16}`",
        ),
        ("a.csv", CSV.decode().encode("utf-16-be"), "is UTF-16BE text, not UTF-8."),
        ("a.csv", CSV.decode().encode("utf-16-le"), "is UTF-16LE text, not UTF-8."),
        ("a.csv", CSV.decode().encode("utf-32"), "is UTF-32 text, not UTF-8. Set"),
        ("a.csv", b"x,y\n1,\0\n", "line 2: holds a zero byte, which text does not."),
        ("a.csv", bytes(8192), "line 1: holds zero bytes alone, which text does not."),
        ("a.csv", b"", "is empty. Expected CSV with a header"),
        ("a.csv", b"\n\n", "is empty. Expected CSV with a header"),
        ("a.csv", b"\xef\xbb\xbf", "is empty. Expected CSV with a header"),
        ("a.csv", b"x,y\n", "has a header but no row."),
        ("a.csv", b"x,y", "has a header but no row."),
        ("a.csv", b'x,y\n1,2\n3,"4\n5,6\n', "line 3: a quote opens a field, and no "),
        ("a.csv.gz", gzipped(b'x\n"\n"\n"\n\n'), "line 4: a quote opens a field"),
        (
            "a.csv",
            "x,y\n1,Zürich\n".encode("latin1"),
            "is not UTF-8 text (line 2: byte",
        ),
        ("a.csv.gz", CSV, "is not compressed by gzip. Let its name end in .csv."),
        ("a.csv.gz", parquet(), "is a Parquet file. Let its name end in .parquet."),
        ("a.csv.gz", gzipped(parquet()), "is a Parquet file, not CSV."),
        ("a.csv.gz", gzipped(CSV * 999)[:-9], "cannot be read: Compressed file "),
        (
            "a.csv.gz",
            gzipped("x\nü".encode("latin1")),
            "is not UTF-8 text (line 2",
        ),
        ("a.parquet", CSV, "cannot be read as Parquet: it is text. If it is CSV, let"),
        (
            "a.parquet",
            gzipped(CSV),
            "cannot be read as Parquet: it is compressed",
        ),
        ("a.parquet", b"", "cannot be read as Parquet: it is empty."),
        (
            "a.parquet",
            parquet()[:-8],
            "cannot be read as Parquet: Parquet magic bytes ",
        ),
    ],
)
def test_file_of_another_format(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name).startswith(message)


@pytest.mark.parametrize(
    ("name", "content", "rows", "above"),
    [
        ("a.csv", CSV, 2, 1),
        ("a.csv.gz", gzipped(CSV), 2, 1),
        ("a.csv", b'x\n"1\n2"\n', 2, 1),  # a quoted line break: the count is too high
        ("a.parquet", parquet(), 2, 2),
    ],
)
def test_rows_are_counted_no_further_than_asked(tmp_path, name, content, rows, above):
    (tmp_path / name).write_bytes(content)
    source = sources.open_source(f"{tmp_path}/{name}")
    assert source.count_rows(enough=9) == rows
    assert source.count_rows(enough=1) == above


def test_a_damaged_file_is_not_counted(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzipped(CSV * 9999)[:-9])
    source = sources.open_source(f"{tmp_path}/a.csv.gz")
    with pytest.raises(UserError, match="cut off or damaged"):
        source.count_rows(enough=10**6)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_are_read(tmp_path, end):
    rows = ["x,y", "1,a", '"2","b c"', ""]
    (tmp_path / "a.csv").write_bytes(("\ufeff" + end.join(rows)).encode())
    (batch,) = sources.open_source(f"{tmp_path}/a.csv").batches()
    assert batch.to_pydict() == {"x": ["1", "2"], "y": ["a", "b c"]}


@pytest.fixture
def as_nobody():
    """Without root's right to read every file."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


@pytest.fixture
def private(tmp_path):
    """Writes a file without read permission."""

    def write(name):
        (tmp_path / name).write_bytes(CSV)
        (tmp_path / name).chmod(0)
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_file_that_may_not_be_read(private, name, request):
    path = private(name)
    request.getfixturevalue("as_nobody")
    expected = "cannot be opened: Permission denied. Allow it, for example: chmod a+r "
    assert refused(path) == f"{expected}{path}."


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_folder_with_the_name_of_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / f"part-0.{name[2:]}").write_bytes(CSV)
    pattern = f"{tmp_path}/*.{name[2:]}"
    with pytest.raises(BadInputError) as caught:
        spans.find_spans(pattern)
    assert f"matches the folder {tmp_path}/{name}, where a file is" in str(caught.value)
    assert f"write `data.examples: {pattern}/*.{name[2:]}`" in str(caught.value)


def test_other_folders_are_passed_over(tmp_path):
    (tmp_path / "archive").mkdir()
    (tmp_path / "a.csv").write_bytes(CSV)
    (span,) = spans.find_spans(f"{tmp_path}/*")
    assert span.files == (f"{tmp_path}/a.csv",)
    sources.check(span.files[0])


def test_the_lines_of_many_bad_rows_are_found_in_one_pass(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    lines = [f"{n}" if n % 3 else f"{n},1" for n in range(300)]
    path.write_text("\n".join(["a,b", *lines]) + "\n")
    source = sources.open_source(str(path))
    passes, opened = [], formats.unpacked_file

    def counted(name):
        passes.append(name)
        return opened(name)

    monkeypatch.setattr(formats, "unpacked_file", counted)
    source.malformed = {}
    assert sum(batch.num_rows for batch in source.batches()) == 100
    assert list(source.malformed) == [n for n in range(300) if n % 3]
    for row, bad in source.malformed.items():
        problem = bad.problem(str(path))
        assert f"rows.csv: line {row + 2}: expected 2 fields" in problem
    assert len(passes) == 1
