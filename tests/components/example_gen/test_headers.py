"""Headers that are not what they seem: the likely cause is named."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.data_files import sources, spans
from strategos.components.data_files.values import numerals
from strategos.components.errors import UserError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a;b\n1;2\n",
            "separated by ',', not by ';': set `data.csv: {delimiter: \";\"}`",
        ),
        ("a\tb\n1\t2\n", r"""not by '\t': set `data.csv: {delimiter: "\t"}`"""),
        ("sep=,\na,b\n1,2\n", "line 1 is `sep=,`, which is for Excel"),
        ("sep=;\na;b\n1;2\n", "line 1 is `sep=;`, which is for Excel"),
    ],
)
def test_another_separator_is_named(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        sources.open_source(str(path))
    assert message in str(raised.value)


def test_a_folder_in_place_of_a_pattern_is_named_with_the_pattern(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.parquet").write_bytes(b"")
    with pytest.raises(UserError) as raised:
        spans.find_spans(str(tmp_path / "data"))
    assert f"write `{tmp_path}/data/*.parquet`" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[(x, True) for x in ("1,234", "-1,234,567.5", "1.234,5", "0,5", " 12,5 ")],
        *[(x, False) for x in ("1234", "1.5", "1,23,4", "a,b", "12345,678.9", "1_000")],
    ],
)
def test_separators_of_thousands_are_known(text, expected):
    assert numerals.has_separators(text) == expected


def test_numbers_with_separators_are_named(tmp_path, run):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f'"1,{n}.5",{n % 2}\n' for n in range(100, 140)))
    (line,) = (line for line in run(path).report() if "separators" in line)
    assert line.startswith(f"`x` is BYTES: '1,100.5' ({path}: line 2) has separators")


@pytest.mark.parametrize("form", ["{}%", "${}", "{} €", "-{}.5%"])
def test_numbers_with_a_unit_are_named(tmp_path, run, form):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{form.format(n)},{n % 2}\n" for n in range(40)))
    (line,) = (line for line in run(path).report() if "percent" in line)
    assert line.startswith(f"`x` is BYTES: '{form.format(0)}' ({path}: line 2) has a")


def test_a_column_that_differs_in_case_alone_is_named(tmp_path, run):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
    (tmp_path / "b.csv").write_text("X,y\n" + "1,0\n2,1\n" * 20)
    with pytest.raises(UserError, match="It has 'X': case and spaces count") as raised:
        run(tmp_path / "*.csv")
    assert f"{tmp_path}/b.csv: no column `x`" in str(raised.value)


def test_a_new_column_in_a_newer_file_is_named_with_the_way_out(tmp_path, run):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,0\n2,1\n" * 20)
    (tmp_path / "b.csv").write_text("x,y,z\n" + "1,0,5\n2,1,6\n" * 20)
    with pytest.raises(UserError, match="schema.file") as raised:
        run(tmp_path / "*.csv")
    declared = 'feature { name: "z" type: FLOAT presence { } }'
    assert declared in str(raised.value)
    schema = tmp_path / "s.pbtxt"
    plain = 'feature { name: "x" type: INT } feature { name: "y" type: INT } '
    schema.write_text(plain + declared)
    assert len(run(tmp_path / "*.csv", schema_file=str(schema)).rows()) == 80


def test_too_many_columns_are_refused_at_once(tmp_path):
    path = tmp_path / "a.csv"
    names = ",".join(f"c{n}" for n in range(1_000_000))
    path.write_text(f"{names}\n")
    with pytest.raises(UserError, match=r"1,000,000 columns; at most 50,000"):
        sources.open_source(str(path))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_zero_byte_far_behind_the_start_is_named_with_its_line(tmp_path, run, suffix):
    lines = ["x,y", *(f"text {n},{n % 2}" for n in range(5000))]
    lines[4000] = "te\0xt,1"
    data = "\n".join(lines).encode() + b"\n"
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    with pytest.raises(UserError, match=r"line 4001: holds a zero byte"):
        run(path)


def test_a_number_beyond_int64_names_the_range(tmp_path, run):
    table = pa.table(
        {"u": pa.array([1, 2**64 - 1] * 20, pa.uint64()), "y": [0, 1] * 20}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="INT from -9223372036854775808 to 92233720"):
        run(tmp_path / "a.parquet")
