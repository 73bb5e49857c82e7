"""Odd cells from file to tf.Example, compared with TFX's CsvExampleGen by value."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.data_files import sources
from strategos.components.data_files.sources.reading import DEFAULT
from strategos.components.errors import UserError

ROWS = 40
ODD_ROW = 17
NUMBERS = [str(i) for i in range(1, ROWS + 1)]
FLOATS = [f"{i}.5" for i in range(1, ROWS + 1)]

# In a column of whole numbers, each of these gives the same as in TFX.
AS_STOCK = [
    *("5", "+5", "-5", "-0", "0", " 5", "5 ", "\t5", "+ 5", "--5", "+-5", "5\u00a0"),
    *("0x1f", "0X1F", "-0x1f", "0b1", "0o7", "5L", "1d5", "0.1f", "1 000", "1,234"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "123456789012345678901234567890", "16777217"),
    *("1e5", "1E+5", "1.", ".5", "-.5", "+.5", "+1.5", "1.e3", "1e5 ", ".", "e5", "1e"),
    *("1e39", "1e400", "-1e400", "1e-400", "12345678901234567890.5", "00.5", "007.50"),
    *("inf", "-inf", "+inf", "Infinity", "INF", "nan", "NaN", "-nan", "+nan", "nan(1)"),
    *(
        "true",
        "True",
        "-",
        "+",
        "NA",
        "None",
        "2013-01-01",
        "12:30",
        "\u0663",
        "\uff15",
    ),
    *('say "hi"', "two\nlines", "two\r\nlines", "a,b", "'5'", "M\u00fcller", "\u0085"),
]
# These give something else than in TFX, for the reason given.
OTHERWISE = {
    "1_000": "grouped digits are text: 1_000 and 10_00 stay apart",
    "1_0.5": "grouped digits are text",
    "00501": "an identifier: 00501 and 501 stay apart",
    "00": "an identifier",
    "-007": "an identifier",
    "  ": "a field of spaces is missing in a column of numbers",
}


@pytest.fixture(scope="module")
def both(tmp_path_factory, run, run_stock):
    """Columns by (cell, base): kind and values here and in TFX."""
    folder = tmp_path_factory.mktemp("odd")
    cells = [*AS_STOCK, *OTHERWISE]
    table = {"row": NUMBERS}
    for index, cell in enumerate(cells):
        for base, numbers in (("int", NUMBERS), ("float", FLOATS)):
            column = list(numbers)
            column[ODD_ROW] = cell
            table[f"{base}-{index}"] = column
    path = folder / "data" / "odd.csv"
    path.parent.mkdir()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    ours, theirs = (_columns(x) for x in (run(path), run_stock(path.parent)))
    return {
        (cell, base): (ours[f"{base}-{index}"], theirs[f"{base}-{index}"])
        for index, cell in enumerate(cells)
        for base in ("int", "float")
    }


def _columns(written):
    """By column: the kind of its features' lists, and the values in order of `row`."""
    rows = sorted(written.features(), key=lambda row: row["row"][1])
    columns = {}
    for name in rows[0]:
        kinds = {row[name][0] for row in rows} - {None}
        values = [str(value) for row in rows for value in row[name][1] or ["missing"]]
        columns[name] = kinds, values
    return columns


@pytest.mark.parametrize("base", ["int", "float"])
@pytest.mark.parametrize("cell", AS_STOCK)
def test_odd_cell_becomes_what_stock_makes_of_it(both, cell, base):
    ours, theirs = both[cell, base]
    assert ours == theirs


@pytest.mark.parametrize("base", ["int", "float"])
@pytest.mark.parametrize("cell", [c for c in OTHERWISE if c.strip()])
def test_text_that_would_lose_something_as_a_number_stays_text(both, cell, base):
    ours, theirs = both[cell, base]
    assert ours[0] == {"bytes_list"}
    assert ours[1][ODD_ROW] == str(cell.encode())
    assert theirs[0] != {"bytes_list"}


@pytest.mark.parametrize("base", ["int", "float"])
def test_field_of_spaces_is_missing_among_numbers(both, base):
    ours, theirs = both["  ", base]
    assert ours[0] == {f"{base}64_list" if base == "int" else "float_list"}
    assert ours[1][ODD_ROW] == "missing"
    assert theirs[0] == {"bytes_list"}


INFINITE = float("inf")
PARQUET = {
    "whole": ([decimal.Decimal(2**53 + 1)], pa.decimal128(20, 0), 2**53 + 1),
    "money": ([decimal.Decimal("0.25")], pa.decimal128(9, 2), 0.25),
    "unsigned": ([2**63 - 1], pa.uint64(), 2**63 - 1),
    "date": ([datetime.date(2013, 1, 2)], pa.date32(), b"2013-01-02"),
    "time": ([datetime.time(1, 2, 3)], pa.time32("s"), b"01:02:03"),
    "flag": ([True], pa.bool_(), 1),
    "large": (["x"], pa.large_string(), b"x"),
    "coded": ([7], pa.dictionary(pa.int32(), pa.int64()), 7),
    "infinite": ([INFINITE], pa.float64(), INFINITE),
    "list": ([["a"]], pa.list_(pa.large_string()), b"a"),
}


def test_parquet_types_that_an_example_does_not_have(tmp_path, run):
    columns = {n: pa.array(v * 30, type_) for n, (v, type_, _) in PARQUET.items()}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    expected = {name: [value] for name, (_, _, value) in PARQUET.items()}
    assert run(tmp_path / "a.parquet").rows() == [expected] * 30


def test_half_precision_is_read(tmp_path):
    from strategos.components.data_files.values.features import convert
    from strategos.components.data_files.values.kinds import Kind

    halves = pa.array([np.float16(0.5), None, np.float16(2.0)], pa.float16())
    batch = pa.RecordBatch.from_arrays([halves], ["x"])
    converted = convert(batch, {"x": Kind.FLOAT})
    assert converted.to_pydict() == {"x": [[0.5], None, [2.0]]}


def test_unsigned_integer_beyond_int64_is_refused_by_row(tmp_path, run):
    table = pa.table({"x": pa.array([1, 2**63], pa.uint64())})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError) as caught:
        run(tmp_path / "a.parquet")
    received = "row 2: column `x`: received '9223372036854775808'"
    assert received in str(caught.value)


def test_a_parquet_file_without_rows_beside_full_ones_is_passed_over(tmp_path, run):
    full = pa.table({"x": [1.5, 2.5] * 20, "s": ["a", "b"] * 20})
    pq.write_table(full, tmp_path / "b.parquet")
    pq.write_table(full.slice(0, 0), tmp_path / "a.parquet")
    untyped = pa.table({"x": pa.array([], pa.string()), "s": pa.nulls(0)})
    pq.write_table(untyped, tmp_path / "c.parquet")
    written = run(tmp_path / "*.parquet")
    assert len(written.rows()) == 40
    assert written.report() == ["FLOAT: x", "BYTES: s"]
    with pytest.raises(UserError, match=r"a\.parquet: has no row"):
        run(tmp_path / "a.parquet")


def test_lists_of_dictionaries_in_several_row_groups_are_read(tmp_path, run):
    lists = [["a", "b"], ["c"], None, ["a"]] * 10
    coded = pa.array(lists, pa.list_(pa.dictionary(pa.int32(), pa.string())))
    table = pa.table({"x": coded, "n": range(40)})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=7)
    rows = {row["n"][0]: row["x"] for row in run(path).rows()}
    expected = [[x.encode() for x in each or []] for each in lists]
    assert [rows[n] for n in range(40)] == expected


@pytest.mark.parametrize("kind", ["FLOAT", "INT"])
def test_a_text_without_a_number_in_a_list_of_numbers_is_rejected(tmp_path, run, kind):
    """The schema says that the texts are numbers."""
    lines = ['{"x": ["1", "2"], "y": 1}', '{"x": ["1", "", "3"], "y": 0}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines * 9) + "\n")
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(
        f'feature {{ name: "x" type: {kind} }} feature {{ name: "y" type: INT }}'
    )
    with pytest.raises(UserError, match=r"line 2: column `x`.*a list with a gap"):
        run(tmp_path / "a.jsonl", schema_file=str(schema))


def test_lists_of_json_keep_their_gaps_wherever_they_are(tmp_path):
    """pyarrow 10 drops them before the first value, and later values move up."""
    draw, path = random.Random(1), tmp_path / "a.jsonl"
    for _ in range(60):
        some = [[None, 1.5, -2.0], [None, "a", ""], [None]]
        rows = [
            {
                name: draw.choices(values, k=draw.randrange(4))
                for name, values in zip("xyz", some, strict=True)
            }
            | {"s": {"of": draw.choices([None, 1], k=draw.randrange(3))}}
            for _ in range(draw.randrange(1, 6))
        ]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (batch,) = sources.open_source(str(path), DEFAULT).batches()
        batch.validate(full=True)
        flat = [{**row, "s.of": row["s"]["of"]} for row in rows]
        assert batch.to_pylist() == [
            {name: row[name] for name in batch.schema.names} for row in flat
        ]


def test_lists_of_json_without_a_value_have_no_type(tmp_path):
    """Files with values of another type may stand beside them."""
    path = tmp_path / "a.jsonl"
    row = {"none": [None, None], "empty": [], "gap": [None, 1.5]}
    path.write_text(f"{json.dumps(row)}\n{json.dumps({'none': [], 'gap': None})}\n")
    (batch,) = sources.open_source(str(path), DEFAULT).batches()
    assert batch.to_pylist() == [row, {"none": [], "empty": None, "gap": None}]
    kinds = [field.type.value_type for field in batch.schema]
    assert kinds == [pa.null(), pa.null(), pa.float64()]


def test_a_list_with_a_gap_is_rejected_by_its_line(tmp_path, run):
    lines = ['{"x": [null, 50.0], "y": 1}', '{"x": [1.0], "y": 0}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"line 1: column `x`.*a list with a gap"):
        run(tmp_path / "a.jsonl")


@pytest.mark.parametrize(("line", "kind"), [(" null ", "null"), ("[1]", "list")])
def test_a_line_of_json_without_an_object_is_no_row(tmp_path, run, line, kind):
    """To Arrow, `null` is a row without values."""
    lines = ['{"x": 1.5, "y": 1}', line, '{"x": 2.5}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=f"line 2: is {kind}, not an object"):
        run(tmp_path / "a.jsonl")
