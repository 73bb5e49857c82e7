"""The section `data.query`: what it needs, and which files it can fill."""

from __future__ import annotations

import pytest

from strategos.pipeline.checks import files
from strategos.pipeline.config.loading import ConfigError, load

DATABASE = "data.query.database=sqlite:///shop.db"
SQL = "data.query.sql=SELECT * FROM orders WHERE day = '{DATE}'"
DAYS = "data.examples=data/{DATE}.parquet"
FIRST = "data.query.first=2024-03-01"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ((DATABASE.replace("sqlite", "sqlight"), SQL, DAYS, FIRST), "`sqlite`"),
        ((DATABASE.replace("///", "//"), SQL, DAYS, FIRST), "sqlite:///shop.db"),
        (
            ("data.query.database=postgresql://a:secret@h/b", SQL, DAYS, FIRST),
            "PGPASSWORD",
        ),
        (("data.query.database=bigquery://shop/a/b", SQL, DAYS, FIRST), "/DATASET"),
        ((DATABASE, "data.query.sql=DROP TABLE x", DAYS, FIRST), "a query: SELECT"),
        ((DATABASE, SQL, DAYS), "the days need a first one"),
        ((DATABASE, SQL, DAYS, "data.query.first=3"), "the days need a first one"),
        ((DATABASE, SQL, DAYS, "data.query.first=soon"), "a day such as 2024-03-01"),
        ((DATABASE, SQL, "data.examples=data/*.parquet"), "orders-{DATE}.parquet"),
        ((DATABASE, SQL, "data.examples=data/{DATE}.csv", FIRST), "one Parquet file"),
        ((DATABASE, SQL, "data.examples=data/{SPAN}.parquet"), "only one of"),
        ((DATABASE, SQL, DAYS, FIRST, "data.prepare=make"), "Remove one"),
        (
            (DATABASE, "data.query.sql=VALUES (1)", "data.examples=a.parquet", FIRST),
            "is a day",
        ),
    ],
)
def test_rejects_what_no_file_could_come_from(workload, sets, words):
    with pytest.raises(ConfigError) as error:
        load(workload, sets=sets)
    assert words in str(error.value) and "secret" not in str(error.value)


def test_first_day_and_file_are_those_of_the_yaml(workload):
    config = load(workload, sets=(DATABASE, SQL, DAYS, FIRST)).config
    query = config.data.query.snapshots(config.data.examples)
    assert query.database == f"sqlite:///{workload.parent}/shop.db"
    assert query.of(query.first).endswith("'2024-03-01'")
    assert query.examples == f"{workload.parent}/data/{{DATE}}.parquet"


def test_missing_spans_are_no_problem_before_the_query_has_run(workload):
    sets = (DATABASE, SQL, DAYS, FIRST, "data.spans=latest 6")
    config = load(workload, sets=sets).config
    assert files.check(config, config.data.listing()) == []


def test_missing_driver_is_named_with_its_remedy(workload, monkeypatch):
    from importlib import util

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    config = load(workload, sets=(DATABASE, SQL, DAYS, FIRST)).config
    (problem,) = files.check(config, config.data.listing())
    assert "adbc-driver-sqlite is not installed" in str(problem)
    assert "pip install 'strategos[sql]'" in str(problem)
