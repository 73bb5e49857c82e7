"""Numbers that float32 changes are kept as INT or named; beside pandas and decimal."""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strategos.components.data_files.values import rounding
from strategos.components.data_files.values.features import convert
from strategos.components.data_files.values.kinds import Kind

derandomized = settings(derandomize=True, deadline=None)
runs = settings(derandomized, max_examples=15, phases=[Phase.generate])
IDS = st.integers(2**24, 2**53)
SMALL = st.integers(-(2**24), 2**24)
DOUBLES = st.one_of(
    st.floats(allow_nan=False),
    st.floats(-(2.0**26), 2.0**26),
    st.floats(-9e5, 9e5).map(lambda value: round(value, 2)),
    st.integers(-(2**60), 2**60).map(float),
)
DECIMALS = st.one_of(
    st.decimals(-(10**8), 10**8, places=17), st.decimals(-(10**8), 10**8, places=2)
)


def watched(values, data_type=None):
    """float32[rows], and the first row that is changed and that is shortened."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, data_type)], ["x"])
    watch = rounding.RoundingWatch({"x"}, {"x"})
    floats = convert(batch, {"x": Kind.FLOAT}, watch=watch).column("x").flatten()
    rows = [each.get("x", (None, ""))[0] for each in (watch.changed, watch.shortened)]
    return floats.to_numpy(), rows


def expected(exact, floats):
    """The rows of `watched`, by decimal arithmetic.

    Args:
      exact: The numbers as decimals.
      floats: What float32 makes of them.
    """
    changed, shortened = [], []
    with decimal.localcontext(decimal.Context(prec=400)):
        for row, (number, value) in enumerate(zip(exact, floats, strict=True)):
            if not number.is_finite():
                continue
            if number in (Decimal(float(value)), Decimal(repr(float(value)))):
                continue
            if abs(number) >= 2**24:
                changed.append(row)
            elif Decimal(str(value)) != number:
                shortened.append(row)
    return [rows[0] if rows else None for rows in (changed, shortened)]


@derandomized
@given(values=st.lists(DOUBLES, min_size=1, max_size=5))
def test_doubles_that_float32_changes_are_found(values):
    with np.errstate(over="ignore"):
        wanted = pd.Series(values, dtype="float64").astype("float32").to_numpy()
    for given_, data_type in (
        (values, pa.float64()),
        ([repr(v) for v in values], None),
    ):
        floats, rows = watched(given_, data_type)
        np.testing.assert_array_equal(floats, wanted)
        assert rows == expected([Decimal(repr(v)) for v in values], floats)


@derandomized
@given(values=st.lists(DECIMALS, min_size=1, max_size=5))
def test_decimals_that_float32_changes_are_found(values):
    wanted = np.array([float(value) for value in values]).astype(np.float32)
    for data_type in (pa.decimal128(38, 17), pa.decimal256(50, 17)):
        floats, rows = watched(values, data_type)
        np.testing.assert_array_equal(floats, wanted)
        assert rows == expected(values, floats)
    floats, rows = watched([format(value, "f") for value in values])
    np.testing.assert_array_equal(floats, wanted)
    assert rows == expected(values, floats)


def test_digits_beyond_a_double_are_found():
    assert watched(["1.5", "1.00000000000000000001"])[1] == [None, 1]
    assert watched(["1.5", "9007199254740993"])[1] == [1, None]
    assert watched([2**53, 2**53 + 1], pa.int64())[1] == [1, None]
    assert watched(["0.10000000000000000", "0.5", "inf"])[1] == [None, None]
    exact = [Decimal("1.00000000000000001"), Decimal("1.00000000000000002")]
    assert watched(exact, pa.decimal128(20, 17))[1] == [None, 0]


def test_a_number_in_a_list_is_found_by_its_row():
    values = [[0.5], [], [0.5, 2.0**24 + 1]]
    assert watched(values, pa.list_(pa.float64()))[1] == [2, None]


KEPT = (
    "INT, not FLOAT, because all numbers are whole, and float32 would change some: {}"
)


def values_of(written, name="id"):
    rows = sorted(written.features(), key=lambda row: row["row"][1])
    kinds = {row[name][0] for row in rows} - {None}
    return kinds, [row[name][1][0] if row[name][1] else None for row in rows]


NUMBERS = st.lists(IDS | SMALL | st.none(), min_size=30, max_size=40)


@runs
@given(numbers=NUMBERS, suffix=st.sampled_from(["csv", "parquet"]))
def test_whole_numbers_of_a_pandas_column_with_a_gap_stay_whole(
    run, tmp_path_factory, numbers, suffix
):
    path = tmp_path_factory.mktemp("ids") / f"a.{suffix}"
    frame = pd.DataFrame({"row": range(len(numbers)), "id": numbers}).astype(
        {"id": "float64"}
    )
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    kinds, found = values_of(run(path))
    present = [n for n in numbers if n is not None]
    changed = any(int(np.float32(n)) != n for n in present)
    assert kinds == (
        {"int64_list"} if changed else {"float_list"} if present else set()
    )
    assert found == numbers


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("fraction", [None, 0.5, float("nan"), 1e20])
def test_one_number_that_is_not_whole_makes_all_files_float(
    run, tmp_path, fraction, statistics
):
    ids = [123456789.0 + i for i in range(30)]
    for name, numbers in (("1", ids), ("2", [0.0, 1.0, fraction])):
        table = pa.table({"id": pa.array(numbers, pa.float64())})
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path, write_statistics=statistics)
    written = run(tmp_path / "*.parquet")
    if fraction is None:
        assert written.report() == ["INT: id", KEPT.format("`id`")]
        expected_ids = {int(value) for value in ids} | {0, 1}
        assert {n for v in written.values("id") for n in v} == expected_ids
    else:
        kind, sentence = written.report()
        assert kind == "FLOAT: id"
        place = f"({tmp_path}/1.parquet: row 1)"
        assert f"cannot represent 123456789.0 {place}" in sentence


def test_small_whole_doubles_stay_float_and_are_not_read_twice(
    run, tmp_path, monkeypatch
):
    from strategos.components.data_files.sources import parquet_source

    def unseen(*_):
        raise AssertionError("the statistics of the file decide")

    monkeypatch.setattr(parquet_source.ParquetSource, "unseen", unseen)
    pq.write_table(
        pa.table({"x": [float(i) for i in range(40)]}), tmp_path / "a.parquet"
    )
    assert run(tmp_path / "a.parquet").report() == ["FLOAT: x"]


def test_whole_numbers_of_lists_and_decimals_stay_whole(run, tmp_path):
    ids = [2**24 + 1 + i for i in range(30)]
    columns = {
        "row": range(30),
        "id": pa.array([[float(i), 1.0] for i in ids], pa.list_(pa.float64())),
        "money": pa.array([Decimal(i) for i in ids], pa.decimal128(20, 2)),
        "a.b": pa.array(ids, pa.float64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    written = run(tmp_path / "a.parquet")
    kept = KEPT.format("`id`, `money`, `a.b`")
    assert written.report() == ["INT: row, id, money, a.b", kept]
    assert sorted(written.values("id")) == [[i, 1] for i in ids]
    assert sorted(written.values("money")) == [[i] for i in ids]


def test_decimals_that_are_stored_as_integers_are_read(run, tmp_path):
    money = pa.array([Decimal(f"{i}.5") for i in range(30)], pa.decimal128(9, 1))
    path = tmp_path / "a.parquet"
    try:
        pq.write_table(pa.table({"x": money}), path, store_decimal_as_integer=True)
    except TypeError:
        pytest.skip("pyarrow before 18 does not write such files")
    assert run(path).report() == ["FLOAT: x"]


def test_unix_times_with_a_fraction_are_named(run, tmp_path):
    path = tmp_path / "a.csv"
    rows = (f"{1_700_000_000 + 7 * i}.25,{i % 2}\n" for i in range(40))
    path.write_text("ts,y\n" + "".join(rows))
    assert run(path).report()[-1] == (
        f"`ts` is FLOAT because of '1700000000.25' ({path}: line 2); float32 cannot "
        f"represent 1700000000.25 ({path}: line 2), so its value changes. Correct it, "
        "or declare the type in a schema."
    )


def test_columns_that_lose_digits_are_named_in_one_line(run, tmp_path):
    path = tmp_path / "a.csv"
    rows = (f"{i / 7!r},{i / 10},{i / 9!r}\n" for i in range(40))
    path.write_text("a,b,c\n" + "".join(rows))
    assert run(path).report() == [
        "FLOAT: a, b, c",
        f"FLOAT keeps about 7 digits; rounded: `a` ({1 / 7!r}, {path}: line 3), `c`",
    ]


def test_a_schema_decides_and_large_numbers_are_named(run, tmp_path):
    schema = tmp_path / "s.pbtxt"
    pq.write_table(
        pa.table({"id": [123456789.0 + i for i in range(30)]}), tmp_path / "a.parquet"
    )
    schema.write_text('feature { name: "id" type: FLOAT }')
    (sentence,) = run(tmp_path / "a.parquet", schema_file=str(schema)).report()
    assert "`id` is FLOAT because the schema says so" in sentence
    schema.write_text('feature { name: "id" type: INT }')
    written = run(tmp_path / "a.parquet", schema_file=str(schema))
    assert sorted(written.values("id"))[:2] == [[123456789], [123456790]]
