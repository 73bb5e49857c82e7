"""Rows that are divided by a column of times."""

from __future__ import annotations

import datetime
import json
import re

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strategos.components.errors import UserError
from strategos.pipeline.config.data_files.split import Split

DAY = datetime.timedelta(days=1)
FIRST = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
DAYS = [FIRST + (n * 37 % 60) * DAY for n in range(60)]  # in no order


def of(**settings):
    return Split(by="time", column="t", **settings).settings()


def write_text(form):
    def write(folder):
        lines = [f"{day.strftime(form)},{n}" for n, day in enumerate(DAYS)]
        (folder / "a.csv").write_text("\n".join(["t,n", *lines, ""]))

    return write


def write_parquet(type_):
    def write(folder):
        values = DAYS if pa.types.is_timestamp(type_) else [d.date() for d in DAYS]
        times = (
            pa.array(values, pa.timestamp("us", "UTC")) if values is DAYS else values
        )
        times = pa.array(times, type_) if values is not DAYS else times.cast(type_)
        pq.write_table(pa.table({"t": times, "n": range(60)}), folder / "a.parquet")

    return write


def write_json(folder):
    zone = datetime.timezone(datetime.timedelta(hours=5))
    rows = [
        {"t": day.astimezone(zone).isoformat(), "n": n} for n, day in enumerate(DAYS)
    ]
    half = len(rows) // 2  # two files: the newest day is in one of them
    for name, some in (("a", rows[:half]), ("b", rows[half:])):
        lines = "".join(json.dumps(row) + "\n" for row in some)
        (folder / f"{name}.jsonl").write_text(lines)


def write_avro(folder):
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "t", "type": kind}, {"name": "n", "type": "long"}]
    rows = [{"t": day, "n": n} for n, day in enumerate(DAYS)]
    with open(folder / "a.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, rows)


WRITERS = {
    "csv": write_text("%Y-%m-%d"),
    "csv_times": write_text("%Y-%m-%dT%H:%M:%SZ"),
    "date": write_parquet(pa.date32()),
    "nanoseconds": write_parquet(pa.timestamp("ns", "Asia/Tokyo")),
    "json": write_json,
    "avro": write_avro,
}


def split_of(written, split):
    """The days since the first one of a split's rows."""
    return sorted((DAYS[n] - FIRST).days for ((n,),) in _numbers(written, split))


def _numbers(written, split):
    return [(row["n"],) for row in written.rows(split)]


@pytest.mark.parametrize("name", WRITERS)
def test_the_newest_rows_are_evaluated(tmp_path, run, name):
    WRITERS[name](tmp_path)
    written = run(tmp_path / "*.*", split=of(eval="10d", validation="5d"))
    assert split_of(written, "eval") == [*range(50, 60)]
    assert split_of(written, "validation") == [*range(45, 50)]
    assert split_of(written, "train") == [*range(45)]


def test_a_date_is_a_bound_that_newer_rows_do_not_move(tmp_path, run):
    WRITERS["csv"](tmp_path)
    written = run(tmp_path / "a.csv", split=of(eval="2024-02-10"))
    assert split_of(written, "eval") == [*range(40, 60)]
    assert split_of(written, "train") == [*range(40)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (",7", r"a.csv: line 4: column `t`: received ''; a row has no"),
        ("soon,7", r"a.csv: line 4: column `t`.*'soon'.*2024-03-01T12:00:00Z"),
    ],
)
def test_a_row_without_a_time_is_named(tmp_path, run, line, message):
    (tmp_path / "a.csv").write_text(f"t,n\n2024-01-01,1\n2024-01-09,2\n{line}\n")
    for bound in ("3d", "2024-01-05"):
        with pytest.raises(UserError) as caught:
            run(tmp_path / "a.csv", split=of(eval=bound))
        assert re.search(message, str(caught.value).replace("\n", " "))


def test_numbers_are_no_times(tmp_path, run):
    pq.write_table(pa.table({"t": [20240101] * 9}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="row 1: column `t`"):
        run(tmp_path / "a.parquet", split=of(eval="3d"))


def test_all_rows_on_one_side_is_an_error(tmp_path, run):
    WRITERS["csv"](tmp_path)
    with pytest.raises(UserError, match=r"`train` got none.*`t` from 2023-01-01"):
        run(tmp_path / "a.csv", split=of(eval="2023-01-01"))
