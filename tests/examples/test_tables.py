"""Rows of Delta and Iceberg tables, by the plug-ins of examples/tables."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake", reason="deltalake is of the newer stack")

from strategos.components import plugins
from strategos.components.data_files.queries import databases, snapshots
from strategos.components.errors import BadInputError

EXAMPLE = Path(__file__).parents[2] / "examples/tables"
NOON = datetime.datetime(2024, 3, 1, 12)
DAYS = ["2024-03-01"] * 3 + ["2024-03-02"] * 2
FIRST = (NOON.date() - datetime.date(1970, 1, 1)).days
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4, 5],
        "price": [0.5, None, 2.5, 3.0, 1e-7],
        "shop": ["a", None, "ö", "b", ""],
        "paid": [True, False, None, True, True],
        "raw": [b"\0\xff", None, b"", b"x", b"y"],
        "at": pa.array([NOON] * 5, pa.timestamp("us", "UTC")),
        "sizes": [[1, 2], [], [3], [4], [5]],
        "day": DAYS,
    }
)
COST = pa.array([Decimal("1.50"), None] * 2 + [Decimal("0.25")], pa.decimal128(10, 2))


@pytest.fixture(autouse=True)
def tables():
    plugins.use(str(EXAMPLE), ["tables"])
    yield
    plugins.use("", ())


@pytest.fixture
def delta(tmp_path):
    from deltalake import write_deltalake

    whole = ROWS.append_column("cost", COST)
    write_deltalake(str(tmp_path / "lake"), whole, partition_by=["day"])
    return f"delta://{tmp_path}/lake", "rows"


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory):
    folder = tmp_path_factory.mktemp("iceberg")
    options = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in options.items():  # pyiceberg reads them when it is imported
            patch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
        from pyiceberg.catalog import load_catalog
    catalog = load_catalog("lake")
    catalog.create_namespace("sales")
    whole = ROWS.append_column("cost", COST)
    catalog.create_table("sales.orders", schema=whole.schema).append(whole)
    return "iceberg://lake", "sales.orders"


@pytest.fixture(params=["delta", "iceberg"])
def lake(request):
    return request.getfixturevalue(request.param)


def answered(url, sql):
    with databases.answer(url, sql) as batches:
        return pa.Table.from_batches(list(batches))


def rejected(url, sql):
    with pytest.raises(BadInputError) as error:
        answered(url, sql)
    return f"{error.value} {error.value.expected}"


def test_answer_has_the_values_of_the_table_and_decimals_as_numbers(lake):
    url, table = lake
    names = ", ".join([*ROWS.column_names, "cost"])
    found = answered(url, f"SELECT {names} FROM {table}").sort_by("id")
    assert found.drop_columns("cost").cast(ROWS.schema).equals(ROWS)
    assert found.schema.field("cost").type == pa.float64()
    assert found.column("cost").to_pylist() == [1.5, None, 1.5, None, 0.25]


def test_days_become_files(lake, tmp_path):
    url, table = lake
    sql = f"SELECT id, shop FROM {table} WHERE day = '{{DATE}}'"
    query = snapshots.Query(url, sql, f"{tmp_path}/{{DATE}}.parquet", FIRST)
    today = NOON.date() + datetime.timedelta(3)
    assert snapshots.bring(query, print, today) == 2
    files = sorted(tmp_path.glob("*.parquet"))
    assert [each.stem for each in files] == ["20240301", "20240302"]
    found = [sorted(pq.read_table(each).column("id").to_pylist()) for each in files]
    assert found == [[1, 2, 3], [4, 5]]


def test_files_that_the_condition_leaves_out_are_not_read(tmp_path):
    from deltalake import write_deltalake

    folder = tmp_path / "lake"
    write_deltalake(str(folder), ROWS.slice(0, 3))
    first = {*folder.rglob("*.parquet")}
    write_deltalake(str(folder), ROWS.slice(3), mode="append")
    for file in {*folder.rglob("*.parquet")} - first:
        file.unlink()
    sql = "SELECT id FROM rows WHERE day = '2024-03-01' ORDER BY id"
    found = answered(f"delta://{folder}", sql)
    assert found.column("id").to_pylist() == [1, 2, 3]


def test_unknown_column_is_named(lake):
    url, table = lake
    assert "prise" in rejected(url, f"SELECT prise FROM {table}")


def test_unknown_table_is_named(delta, iceberg, tmp_path):
    assert "none" in rejected(f"delta://{tmp_path}/none", "SELECT 1 AS x FROM rows")
    assert "sales.none" in rejected("iceberg://lake", "SELECT id FROM sales.none")


def test_a_query_that_iceberg_cannot_run_is_answered_with_the_form(iceberg):
    url, table = iceberg
    for sql in (f"SELECT id + 1 FROM {table}", f"SELECT id FROM {table} LIMIT 3"):
        assert "SELECT a, b FROM" in rejected(url, sql)
    assert "day = '2024-03-01'" in rejected(url, f"SELECT id FROM {table} WHERE day =")
