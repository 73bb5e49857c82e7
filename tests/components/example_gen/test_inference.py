"""Inferred types: null spellings, identifiers, and what the run's report shows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NULLS = ["NA", "NaN", "null"]


@pytest.fixture
def table(tmp_path):
    """Writes columns as CSV: `table(price=[…])`; numbers 1 to 30 by default."""

    def write(name="a.csv", **columns):
        columns = {"n": range(1, 31), **columns}
        lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        path = tmp_path / name
        path.write_text("\n".join([",".join(columns), *lines]) + "\n")
        return path

    return write


def numbers_with(value, at=16):
    return [*range(1, at), value, *range(at + 1, 31)]


def test_one_word_in_a_numeric_column_is_named_with_file_and_line(table, run):
    path = table(price=numbers_with("n.a."), shop=["a", "b"] * 15)
    report = run(path, null_values=NULLS).report()
    assert report == [
        "INT: n",
        "BYTES: price, shop",
        f"`price` is BYTES because of 'n.a.' ({path}: line 17); 29 of 30 values are "
        "numbers. Correct the value, add it to `data.null_values`, or declare the type "
        "in a schema.",
    ]


@pytest.mark.parametrize("late", [16, 40_000])
def test_first_odd_value_is_found_wherever_it_is(tmp_path, run, late):
    values = [str(i) for i in range(50_000)]
    values[late] = values[late + 500] = "odd"
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(values))
    report = run(tmp_path / "a.csv").report()
    assert f"'odd' ({tmp_path}/a.csv: line {late + 2}); 49,998 of 50,000" in report[-1]


def test_text_before_numbers_is_named_too(tmp_path, run):
    values = ["x", *["unknown"] * 400, *map(str, range(50_000))]
    (tmp_path / "a.csv").write_text("\n".join(values))
    report = run(tmp_path / "a.csv").report()
    assert report[-1].startswith(f"`x` is BYTES because of 'unknown' ({tmp_path}/a.csv")


def test_odd_value_in_another_file_or_span(table, run, tmp_path):
    table("1.csv", x=range(30))
    table("2.csv", x=numbers_with("ten", at=2))
    report = run(f"{tmp_path}/{{SPAN}}.csv").report()
    assert f"'ten' ({tmp_path}/2.csv: line 3); 59 of 60" in report[-1]


@pytest.mark.parametrize("spelling", ["NA", "NaN", "null", " NA ", "  "])
def test_null_spelling_is_missing_in_a_column_of_numbers(table, run, spelling):
    path = table(x=numbers_with(spelling), y=[f"{i}.5" for i in numbers_with(0)])
    written = run(path, null_values=NULLS)
    rows = sorted(written.features(), key=lambda row: row["n"][1])
    assert rows[15]["x"] == (None, [])
    assert rows[14]["x"] == ("int64_list", [15])
    assert written.report() == ["INT: n, x", "FLOAT: y"]


@pytest.mark.formats
def test_values_beside_null_spellings_stay_in_every_batch_of_a_large_file(
    run, tmp_path
):
    """A function of Arrow 18.1 returns wrong bytes for slices of strings."""
    values = [str(i) if i % 1000 else "NA" for i in range(40_000)]
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(values))
    written = run(tmp_path / "a.csv", null_values=NULLS)
    assert written.report() == ["INT: x"]
    found = sorted(row["x"] for row in written.rows() if row["x"])
    assert found == [[i] for i in range(40_000) if i % 1000]


def test_nan_is_missing_in_a_float_column_and_a_number_without_the_setting(table, run):
    path = table(x=[f"{i}.5" for i in range(29)] + ["NaN"])
    rows = run(path, null_values=NULLS).features()
    assert [row["x"] for row in rows if row["n"][1] == [30]] == [(None, [])]
    rows = run(path).features()
    kind, (value,) = next(row["x"] for row in rows if row["n"][1] == [30])
    assert kind == "float_list" and value != value


def test_number_as_null_spelling(table, run):
    path = table(x=numbers_with(-999), y=[f"{i}.5" for i in range(29)] + [" -999"])
    rows = run(path, null_values=["-999"]).features()
    assert [row["x"] for row in rows if row["n"][1] == [16]] == [(None, [])]
    assert [row["y"] for row in rows if row["n"][1] == [30]] == [(None, [])]


def test_null_spelling_stays_in_a_text_column(table, run):
    path = table(country=["NA", "DE", "null"] * 10, only=["NA"] * 30)
    rows = run(path, null_values=NULLS).features()
    assert {row["country"][1][0] for row in rows} == {b"NA", b"DE", b"null"}
    assert {row["only"][1][0] for row in rows} == {b"NA"}


def test_all_files_decide_whether_a_spelling_is_null(table, run, tmp_path):
    table("1.csv", x=["NA"] * 30, y=["NA"] * 30)
    table("2.csv", x=range(30), y=["x"] * 30)
    rows = run(f"{tmp_path}/*.csv", null_values=NULLS).features()
    assert {row["x"][0] for row in rows} == {None, "int64_list"}
    assert {row["y"][1][0] for row in rows} == {b"NA", b"x"}


def test_null_spelling_under_a_schema(table, run, tmp_path):
    schema = tmp_path / "s.pbtxt"
    kinds = {"n": "INT", "x": "FLOAT", "y": "BYTES", "z": "INT"}
    schema.write_text(
        "".join(f'feature {{ name: "{n}" type: {k} }}\n' for n, k in kinds.items())
    )
    path = table(x=["NA", *range(29)], y=["NA"] * 30, z=["NA"] * 30)
    written = run(path, null_values=NULLS, schema_file=str(schema))
    first = next(row for row in written.features() if row["n"][1] == [1])
    assert (first["x"], first["y"]) == ((None, []), ("bytes_list", [b"NA"]))
    assert all(row["z"] == (None, []) for row in written.features())
    assert written.report() == []


def test_identifiers_stay_text_and_the_report_names_why(table, run):
    path = table(zip=[f"{i * 313:05}" for i in range(1, 31)])
    written = run(path)
    assert [b"00313"] in written.values("zip")
    assert (
        f"`zip` is BYTES: '00313' ({path}: line 2) has leading zeros, as identifiers "
        "have. Where it is a number, declare its type in a schema."
    ) in written.report()


def test_leading_zeros_are_a_number_where_the_schema_declares_one(table, run, tmp_path):
    schema = tmp_path / "s.pbtxt"
    schema.write_text('feature { name: "n" type: INT }feature { name: "x" type: INT }')
    path = table(x=[f"{i:03}" for i in range(30)])
    assert [7] in run(path, schema_file=str(schema)).values("x")


def test_hexadecimal_codes_stay_apart(table, run):
    written = run(table(code=["0x0a", "0xA", "0x1f"] * 10))
    assert {v[0] for v in written.values("code")} == {b"0x0a", b"0xA", b"0x1f"}


def test_number_that_float32_rounds_is_named(table, run):
    path = table(id=[*range(16777216, 16777245), "0.5"], far=["0.5"] * 29 + ["1e39"])
    report = run(path).report()
    assert report[-2:] == [
        f"`id` is FLOAT because of '0.5' ({path}: line 31); float32 cannot represent "
        f"16777217 ({path}: line 3), so its value changes. Correct it, or declare the "
        "type in a schema.",
        f"`far` is FLOAT because of '0.5' ({path}: line 2); float32 cannot represent "
        f"1e39 ({path}: line 31), so its value changes. Correct it, or declare the "
        "type in a schema.",
    ]


def test_int_float_and_text_over_files_of_two_formats(table, run, tmp_path):
    ids = pa.array([2**24 + 1, None, 3], pa.int64())
    pq.write_table(
        pa.table({"n": [1, 2, 3], "x": ids, "y": ids}), tmp_path / "1.parquet"
    )
    table("2.csv", x=numbers_with("0.5"), y=numbers_with("b"))
    written = run(f"{tmp_path}/*.[cp]*")
    assert {row["x"][0] for row in written.features()} == {"float_list", None}
    assert {row["y"][0] for row in written.features()} == {"bytes_list", None}
    assert [b"16777217"] in written.values("y")
    report = written.report()
    assert report[:3] == ["INT: n", "FLOAT: x", "BYTES: y"]
    assert f"'b' ({tmp_path}/2.csv: line 17); 32 of 33" in report[3]
    assert f"16777217 ({tmp_path}/1.parquet: row 1)" in report[4]


def test_report_of_many_columns_is_short(table, run):
    path = table(**{f"c{i}": numbers_with("?") for i in range(20)})
    report = run(path).report()
    assert report[1] == "BYTES: c0, c1, c2, c3, c4, c5, c6, c7 and 12 more"
    assert len(report) == 8
    assert report[-1].startswith("nearly all numbers are also: c5, c6")
