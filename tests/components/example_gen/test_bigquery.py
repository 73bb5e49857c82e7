"""BigQuery's answers: the values of its Arrow batches, in the order of the query.

The service is a fake of its REST and gRPC APIs behind Google's own clients.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bigquery import BigQuery  # of tests/lab

from strategos.components.data_files.queries import bigquery, databases, snapshots
from strategos.components.errors import BadInputError

URL = "bigquery://shop/sales"
NOON = datetime.datetime(2024, 3, 1, 12)
ROWS = pa.table(
    {
        "id": pa.array(range(10)),
        "price": pa.array([*[0.5, None] * 5]),
        "name": pa.array(["a", None, "ö", *["x"] * 7]),
        "paid": pa.array([True, False] * 5),
        "cost": pa.array([Decimal("1.5"), None] * 5, pa.decimal128(38, 9)),
        "costs": pa.array([[Decimal("2.5")], []] * 5, pa.list_(pa.decimal128(38, 9))),
        "at": pa.array([NOON] * 10, pa.timestamp("us", "UTC")),
        "day": pa.array([NOON.date()] * 10, pa.date32()),
        "raw": pa.array([b"\0\xff"] * 10),
    }
)


@pytest.fixture
def big_query(monkeypatch):
    """Starts one that gives a table, or rejects a query."""
    started = []

    def up(answer):
        started.append(BigQuery(answer))
        for name, value in started[-1].environment.items():
            monkeypatch.setenv(name, value)
        return started[-1]

    yield up
    for each in started:
        each.down()


def answered(sql="SELECT * FROM orders"):
    with databases.answer(URL, sql) as batches:
        return pa.Table.from_batches(list(batches))


def rejected(sql="SELECT 1 AS n"):
    with pytest.raises(BadInputError) as error:
        answered(sql)
    return error.value


def test_answer_has_the_rows_in_their_order_and_decimals_as_numbers(big_query):
    service = big_query(lambda sql: ROWS)
    found = answered("SELECT * FROM orders ORDER BY id;")
    assert service.asked == [("sales", "SELECT * FROM orders ORDER BY id")]
    others = ROWS.column_names[:4] + ROWS.column_names[6:]
    assert found.select(others).equals(ROWS.select(others))
    assert found.column("cost").to_pylist() == [1.5, None] * 5
    assert found.column("costs").to_pylist() == [[2.5], []] * 5


def test_days_become_files_and_a_day_without_rows_none(big_query, tmp_path):
    big_query(lambda sql: ROWS.slice(0, 0 if "2024-03-02" in sql else 4))
    first = (NOON.date() - datetime.date(1970, 1, 1)).days
    pattern = f"{tmp_path}/{{DATE}}.parquet"
    sql = "SELECT * FROM orders WHERE day = '{DATE}'"
    query = snapshots.Query(URL, sql, pattern, first)
    today = NOON.date() + datetime.timedelta(3)
    assert snapshots.bring(query, print, today) == 2
    files = sorted(tmp_path.iterdir())
    assert [each.stem for each in files] == ["20240301", "20240303"]
    assert pq.read_table(files[0]).column("id").to_pylist() == [0, 1, 2, 3]


def test_nothing_but_a_query_runs(big_query):
    service = big_query(lambda sql: ROWS)
    error = rejected("CREATE TABLE x AS SELECT 1")
    assert "CREATE" in str(error) and not service.asked


def test_struct_is_rejected_by_name(big_query):
    point = pa.array([{"x": 1}], pa.struct({"x": pa.int64()}))
    big_query(lambda sql: pa.table({"point": point}))
    error = rejected()
    assert "`point`" in str(error) and "point.x AS x" in str(error.remedy)


def test_rejection_of_the_service_names_query_or_rights(big_query):
    def answer(sql):
        raise ValueError("Unrecognized name: prise at [1:8]")

    service = big_query(answer)
    error = rejected("SELECT prise FROM orders")
    assert error.key == "data.query.sql" and "prise at [1:8]" in str(error)
    service.failure = 403, "Access Denied: Project shop"
    error = rejected()
    assert error.key == "data.query.database" and "Access Denied" in str(error)
    assert "roles/bigquery.jobUser" in str(error.remedy)


def test_missing_credentials_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", f"{tmp_path}/none.json")
    error = rejected()
    assert error.key == "data.query.database"
    assert "none.json" in str(error) and "gcloud auth" in str(error.remedy)


def test_service_that_does_not_answer_is_named(big_query, monkeypatch):
    monkeypatch.setattr(bigquery, "_PATIENCE", 1.0)
    service = big_query(lambda sql: ROWS)
    service.down()
    assert "Connection refused" in str(rejected())
