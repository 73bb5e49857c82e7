"""Queries: the files that they fill hold the rows of the database, once each."""

from __future__ import annotations

import datetime
import math
import sqlite3

import databases as servers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components import plugins
from strategos.components.data_files.queries import databases, snapshots
from strategos.components.data_files.queries.snapshots import Query
from strategos.components.errors import BadInputError

TODAY = datetime.date(2024, 3, 4)
FIRST = (datetime.date(2024, 3, 1) - datetime.date(1970, 1, 1)).days
DAYS = ("2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04")


@pytest.fixture
def shop(tmp_path):
    """An SQLite database with two orders on each of four days."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE orders (day TEXT, id INTEGER, price REAL)")
        rows = [
            (day, 10 * n + k, n + 0.5) for n, day in enumerate(DAYS) for k in (1, 2)
        ]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    return path


@pytest.fixture
def execute(shop):
    def run(*statement):
        with sqlite3.connect(shop) as database:
            database.execute(*statement)

    return run


@pytest.fixture
def query(shop, tmp_path):
    def make(sql, name="{DATE}", first=FIRST):
        return Query(f"sqlite:///{shop}", sql, f"{tmp_path}/of-{name}.parquet", first)

    return make


BY_DAY = "SELECT id, price FROM orders WHERE day = '{DATE}' ORDER BY id"


def bring(query):
    """Writes what is missing; returns the lines of the report."""
    lines: list[str] = []
    assert snapshots.bring(query, lines.append, TODAY) == len(lines)
    return lines


def ids(tmp_path):
    files = sorted(tmp_path.glob("of-*.parquet"))
    return {f.stem[3:]: pq.read_table(f).column("id").to_pylist() for f in files}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
            st.none() | st.binary(min_size=1),
        ),
        min_size=1,
    )
)
def test_answers_are_the_values_that_python_reads(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("database") / "a.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (i INTEGER, f REAL, t TEXT, b BLOB)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        expected = database.execute("SELECT * FROM t").fetchall()
    with databases.answer(f"sqlite:///{path}", "SELECT * FROM t;") as batches:
        found = pa.Table.from_batches(list(batches))
    assert list(zip(*found.to_pydict().values(), strict=True)) == expected


def test_large_answer_is_written_in_groups_and_equal_rows_make_equal_files(tmp_path):
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (id INTEGER)")
        rows = ((n,) for n in range(150_000))
        database.executemany("INSERT INTO t VALUES (?)", rows)
    queries = [
        Query(f"sqlite:///{path}", "SELECT id FROM t", f"{tmp_path}/of-{n}.parquet")
        for n in "ab"
    ]
    for each in queries:
        assert "150,000 rows" in bring(each)[0]
    first, second = (tmp_path / f"of-{n}.parquet" for n in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert pq.read_table(first).column("id").to_pylist() == list(range(150_000))
    assert pq.ParquetFile(first).num_row_groups == 3


def test_days_that_are_over_are_asked_for_once(query, execute, tmp_path):
    assert len(bring(query(BY_DAY))) == 3
    held = {"20240301": [1, 2], "20240302": [11, 12], "20240303": [21, 22]}
    assert ids(tmp_path) == held
    execute("UPDATE orders SET id = id + 1000")
    assert bring(query(BY_DAY)) == [] and ids(tmp_path) == held
    (tmp_path / "of-20240302.parquet").unlink()
    bring(query(BY_DAY))
    assert ids(tmp_path) == held | {"20240302": [1011, 1012]}


def test_day_without_rows_has_no_file_until_it_has_rows(query, execute, tmp_path):
    execute("DELETE FROM orders WHERE day = ?", DAYS[1:2])
    bring(query(BY_DAY))
    assert list(ids(tmp_path)) == ["20240301", "20240303"]
    execute("INSERT INTO orders VALUES (?, 5, 1.5)", DAYS[1:2])
    assert len(bring(query(BY_DAY))) == 1 and ids(tmp_path)["20240302"] == [5]


def test_changed_query_is_asked_for_all_spans_but_files_of_others_stay(query, tmp_path):
    table = pa.table({"id": [7], "price": [1.0]})
    pq.write_table(table, tmp_path / "of-20240302.parquet")
    assert len(bring(query(BY_DAY))) == 2
    changed = query(BY_DAY.replace("SELECT id", "SELECT -id AS id"))
    assert len(bring(changed)) == 2
    expected = {"20240301": [-2, -1], "20240302": [7], "20240303": [-22, -21]}
    assert {name: sorted(values) for name, values in ids(tmp_path).items()} == expected


def test_numbers_are_asked_for_up_to_one_without_rows(query, execute, tmp_path):
    sql = "SELECT id FROM orders WHERE id / 10 = {SPAN}"
    numbered = query(sql, "{SPAN:2}", first=1)
    assert len(bring(numbered)) == 3 and list(ids(tmp_path)) == ["01", "02", "03"]
    assert bring(numbered) == []
    execute("INSERT INTO orders VALUES ('', 41, 1.0)")
    assert len(bring(numbered)) == 1 and ids(tmp_path)["04"] == [41]


def rejected(query) -> str:
    with pytest.raises(BadInputError) as error:
        bring(query)
    assert error.value.key.startswith("data.")
    return str(error.value)


def test_a_rejected_query_says_what_the_database_says(query, tmp_path):
    message = rejected(query("SELECT idd FROM orders", "all"))
    assert message.endswith("no such column: idd")
    assert "2 columns have the name" in rejected(query("SELECT 1 AS a, 2 AS a", "all"))
    none = query("SELECT id FROM orders WHERE id < 0", "all")
    assert rejected(none).endswith("the query has no rows")
    assert ids(tmp_path) == {}
    gone = Query(
        f"sqlite:///{tmp_path}/no.db", "SELECT 1 AS id", f"{tmp_path}/of.parquet"
    )
    assert rejected(gone).endswith("no.db not found")


def test_file_appears_whole_or_not_at_all(query, execute, tmp_path):
    execute(
        "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM n WHERE i < 70000) SELECT '2024-03-02', i, 1 FROM n"
    )
    execute("INSERT INTO orders VALUES ('2024-03-02', 'text', 1)")
    message = rejected(query(BY_DAY.replace(" ORDER BY id", "")))
    assert "Type mismatch" in message and "CAST(NAME AS TEXT)" in message
    assert list(ids(tmp_path)) == ["20240301"] and not list(tmp_path.glob(".*"))


def test_other_columns_than_those_of_earlier_files(query, execute, tmp_path):
    sql = "SELECT * FROM orders WHERE day = '{DATE}'"
    (tmp_path / "of-20240303.parquet").touch()
    assert "cannot be read as a Parquet file" in rejected(query(sql))
    (tmp_path / "of-20240303.parquet").unlink()
    bring(query(sql))
    (tmp_path / "of-20240303.parquet").unlink()
    execute("ALTER TABLE orders RENAME COLUMN price TO cost")
    message = rejected(query(sql))
    assert "of-20240303.parquet" in message and "missing: price; new: cost" in message
    assert list(ids(tmp_path)) == ["20240301", "20240302"]


def test_earlier_rows_that_a_changed_query_lacks_are_not_lost(query, execute, tmp_path):
    bring(query(BY_DAY))
    execute("DELETE FROM orders WHERE day = ?", DAYS[:1])
    message = rejected(query(BY_DAY.replace("id,", "id, id AS other,")))
    assert "of-20240301.parquet has the rows of an earlier query" in message
    assert len(ids(tmp_path)) == 3


TYPES = """
  SELECT 9007199254740993::bigint AS big, 12.25::numeric(10, 2) AS price,
    'NaN'::numeric AS nan, NULL::numeric AS none, true AS flag, 1.5::real AS real,
    date '2024-03-01' AS day, timestamp '2024-03-01 10:00' AS naive,
    timestamptz '2024-03-01 10:00+02' AS aware, 'ü'::varchar(3) AS text,
    'ok'::mood AS mood, '{"a": 1}'::json AS json, array[1, 2] AS list,
    n FROM generate_series(1, 100000) n ORDER BY n;
"""


@pytest.mark.formats
def test_values_of_postgresql(postgresql, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wrong")
    query = Query(postgresql, TYPES, f"{tmp_path}/of.parquet")
    assert "password authentication failed" in rejected(query)
    monkeypatch.setenv("PGPASSWORD", servers.PASSWORD)
    assert rejected(query).endswith('type "mood" does not exist')
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(postgresql) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('ok')")
        connection.commit()
    bring(query)
    found = pq.read_table(tmp_path / "of.parquet")
    assert found.column("n").to_pylist() == list(range(1, 100_001))
    row = found.slice(99_999).to_pylist()[0]
    assert math.isnan(row.pop("nan"))
    utc = datetime.timezone.utc
    assert row == {
        "big": 2**53 + 1,
        "price": 12.25,
        "none": None,
        "flag": True,
        "real": 1.5,
        "day": datetime.date(2024, 3, 1),
        "naive": datetime.datetime(2024, 3, 1, 10),
        "aware": datetime.datetime(2024, 3, 1, 8, tzinfo=utc),
        "text": "ü",
        "mood": "ok",
        "json": '{"a": 1}',
        "list": [1, 2],
        "n": 100_000,
    }
    assert (
        found.schema.field("price").type == found.schema.field("none").type == "double"
    )
    for value in ("gen_random_uuid()", "array[1.5]", "interval '1 day'"):
        message = rejected(Query(postgresql, f"SELECT {value} AS x", query.examples))
        assert "column `x` has the type" in message and "CAST(x AS" in message
    deleting = "WITH gone AS (DELETE FROM pg_enum RETURNING 1) SELECT 1 AS x"
    message = rejected(Query(postgresql, deleting, query.examples))
    assert "read-only transaction" in message


LAKE = """
import contextlib
from decimal import Decimal

import pyarrow as pa
from strategos.components.data_files.queries.database import Database

COST = pa.array([[Decimal("0.25"), None], None], pa.large_list(pa.decimal128(9, 2)))
AT = pa.array([1_700_000_000_000_000_001, None], pa.timestamp("ns"))

class Lake(Database):
    @contextlib.contextmanager
    def answer(self, url, sql):
        batch = pa.RecordBatch.from_pydict({"cost": COST, "at": AT})
        yield batch.schema, iter([batch])

PLUGINS = {"strategos.databases": {"lake": Lake}}
"""


@pytest.fixture
def lake(tmp_path):
    """The URL of a database of a plug-in."""
    (tmp_path / "lakes.py").write_text(LAKE)
    plugins.use(str(tmp_path), ["lakes"])
    yield "lake://here"
    plugins.use("", ())


def test_nanoseconds_of_a_plug_in_are_kept(lake, tmp_path):
    bring(Query(lake, "SELECT cost, at FROM rows", f"{tmp_path}/of-a.parquet"))
    found = pq.read_table(tmp_path / "of-a.parquet").column("at").cast(pa.int64())
    assert found.to_pylist() == [1_700_000_000_000_000_001, None]


def test_decimals_in_any_lists_of_a_plug_in_are_numbers(lake):
    with databases.answer(lake, "SELECT cost FROM rows") as batches:
        (batch,) = batches
    assert batch.column(0).type == pa.list_(pa.float64())
    assert batch.column(0).to_pylist() == [[0.25, None], None]
