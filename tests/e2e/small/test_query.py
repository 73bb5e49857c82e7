"""A run whose rows are those of a database, and one day later."""

from __future__ import annotations

import datetime
import json
import sqlite3

import pytest

pytestmark = pytest.mark.long

TODAY = datetime.datetime.now(datetime.timezone.utc).date()
DAYS = [str(TODAY - datetime.timedelta(days)) for days in (3, 2, 1)]

# By default the place of a row in its files decides on its split.
BY_VALUES = ("--set", "data.split={by: hash, keys: [x]}")


def insert(workspace, day, span):
    lines = (workspace.folder / f"csv/span-{span}/rows.csv").read_text().splitlines()
    rows = [(day, *line.split(",")) for line in lines[1:]]
    marks = ", ".join("?" * len(rows[0]))
    columns = ", ".join(f"{name} REAL" for name in lines[0].split(","))
    with sqlite3.connect(workspace.folder / "rows.db") as database:
        database.execute(f"CREATE TABLE IF NOT EXISTS rows (day TEXT, {columns})")
        database.executemany(f"INSERT INTO rows VALUES ({marks})", rows)


@pytest.fixture(scope="module")
def small(make_small, tmp_path_factory):
    """The small workload, its first span in a database as the rows of a day."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    (made.folder / "data").rename(made.folder / "csv")
    insert(made, DAYS[0], 1)
    return made


@pytest.fixture(scope="module")
def settings(small):
    header = (small.folder / "csv/span-1/rows.csv").read_text().splitlines()[0]
    query = {
        "database": "sqlite:///rows.db",
        "sql": f"SELECT {header} FROM rows WHERE day = '{{DATE}}'",
        "first": DAYS[0],
    }
    sets = ("data.examples=data/{DATE}.parquet", f"data.query={json.dumps(query)}")
    return [word for each in sets for word in ("--set", each)]


def summary(workspace, *settings):
    workspace.run(*settings)
    return workspace.last_run()["summary"]["overall"]


def test_model_is_that_of_the_same_rows_in_csv(small, settings):
    csv = "data.examples=csv/span-{SPAN}/*.csv"
    of_csv = summary(small, *BY_VALUES, "--set", csv, "--set", "data.spans=1")
    assert summary(small, *BY_VALUES, *settings) == of_csv
    assert small.states()["Trainer"] == "complete"


def test_new_day_is_due_and_a_table_that_changed_is_not(small, settings):
    def retrained():
        words = ("retrain", str(small.yaml), *settings, "--if-due")
        return small.strategos(*words)

    retrained()
    assert "Not due" in retrained().stdout
    with sqlite3.connect(small.folder / "rows.db") as database:
        database.execute("DELETE FROM rows")
    assert "Not due" in retrained().stdout
    insert(small, DAYS[2], 2)
    done = retrained()
    assert f"data/{DAYS[2].replace('-', '')}.parquet: " in done.stderr
    assert small.states()["Trainer"] == "complete"
    assert "Not due" in retrained().stdout
