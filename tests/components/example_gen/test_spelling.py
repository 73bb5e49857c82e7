"""Times and numbers as text: one spelling for a value, beside pandas and pyarrow."""

from __future__ import annotations

import datetime
import decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files.values import spelling

derandomized = settings(derandomize=True, deadline=None)
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "+02:00"]
NANOSECONDS = st.integers(-(2**63) // 10**9 + 1, 2**63 // 10**9 - 1).flatmap(
    lambda seconds: st.sampled_from(
        [seconds * 10**9 + rest for rest in (0, 5 * 10**8, 123 * 10**6, 10**3, 7)]
    )
)


def text(values, data_type):
    return spelling.text_of(pa.array(values, data_type)).to_pylist()


@derandomized
@given(instant=NANOSECONDS, zone=st.sampled_from([None, *ZONES]))
def test_an_instant_has_one_spelling_in_any_unit_and_zone(instant, zone):
    fitting = [unit for unit, size in UNITS.items() if instant % size == 0]
    zones = ZONES if zone else [None]
    found = {
        spelled
        for unit in fitting
        for each in zones
        for spelled in text([instant // UNITS[unit], None], pa.timestamp(unit, each))
    }
    (spelled,) = found - {None}
    read = pd.Timestamp(spelled.decode())
    assert read.value == instant
    assert (read.tz is None) == (zone is None)


@derandomized
@given(instant=st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 1, 1)))
def test_instants_beyond_nanoseconds_are_spelled_too(instant):
    wanted = instant.isoformat(" ").rstrip("0") if instant.microsecond else str(instant)
    assert text([instant], pa.timestamp("us")) == [wanted.encode()]
    zoned = instant.replace(tzinfo=ZoneInfo("UTC"))
    assert text([zoned], pa.timestamp("us", "Asia/Tokyo")) == [f"{wanted}Z".encode()]


@derandomized
@given(time=st.times().map(lambda time: time.replace(microsecond=0)))
def test_a_time_of_day_has_one_spelling_in_any_unit(time):
    types = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    assert {text([time], each)[0] for each in types} == {str(time).encode()}


@derandomized
@given(date=st.dates())
def test_a_date_has_one_spelling(date):
    assert (
        text([date], pa.date32()) == text([date], pa.date64()) == [str(date).encode()]
    )


@derandomized
@given(value=st.integers(-(2**53), 2**53))
def test_a_whole_number_is_the_same_text_in_any_type(value):
    expected = [str(value).encode()]
    assert text([value], pa.int64()) == text([value], pa.float64()) == expected
    assert text([decimal.Decimal(value)], pa.decimal128(38, 2)) == expected


@derandomized
@given(
    value=st.decimals(allow_nan=False, allow_infinity=False, places=8).filter(
        lambda value: abs(value) < 10**20
    )
)
def test_all_digits_of_a_decimal_are_in_its_text(value):
    for scale in (8, 10):
        (found,) = text([value], pa.decimal128(38, scale))
        assert decimal.Decimal(found.decode()) == value
        assert found == text([value], pa.decimal128(38, 9))[0]


@derandomized
@given(value=st.floats(allow_nan=False))
def test_the_text_of_a_double_is_the_double(value):
    assert float(text([value], pa.float64())[0]) == value


@derandomized
@given(value=st.floats(allow_nan=False, width=32))
def test_the_text_of_a_float_is_the_float(value):
    assert np.float32(text([value], pa.float32())[0]) == np.float32(value)


@pytest.mark.parametrize("units", [("ns", "us"), ("s", "ms")])
def test_days_of_two_units_are_five_values(run, tmp_path, units):
    days = [datetime.datetime(2024, 3, day) for day in range(1, 6)] * 8
    for span, unit in enumerate(units, 1):
        table = pa.table({"day": pa.array(days, pa.timestamp(unit)), "y": range(40)})
        folder = tmp_path / f"span-{span}"
        folder.mkdir()
        pq.write_table(table, folder / "a.parquet", version="2.6")
    found = {row["day"][0] for row in run(tmp_path / "span-{SPAN}" / "*").rows()}
    assert found == {f"2024-03-0{day} 00:00:00".encode() for day in range(1, 6)}
