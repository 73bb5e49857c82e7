"""PostgreSQL and SQLite: they answer in Arrow batches, through their ADBC drivers.

https://arrow.apache.org/adbc: the drivers convert in C, column by column. A query runs
in a transaction that may only read.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from strategos.components.data_files.queries.database import Database
from strategos.components.errors import BadInputError, require_extra
from strategos.components.slow_imports import pa

_SQLITE, _POSTGRESQL = "adbc_driver_sqlite", "adbc_driver_postgresql"
# A column of SQLite has the type of its values in so many first rows.
_TYPED_ROWS = 65_536
_WORDING = re.compile(r"(?:ERROR|FATAL): +(.*)|\[(?:SQLite|libpq)\] (.*)", re.DOTALL)
_TAIL = re.compile(
    r"\s*(?:LINE \d+:.*|Query was:.*|\nquery:.*|\. SQLSTATE.*)", re.DOTALL
)


def path_of(url: str) -> str:
    """The path in the URL of an SQLite file: `a.db` of `sqlite:///a.db`."""
    return url.removeprefix("sqlite:///")


class Sqlite(Database):
    """A file of SQLite: `sqlite:///FOLDER/FILE`."""

    def check(self, url: str) -> None:
        """See `Database`."""
        _require(_SQLITE)

    @contextlib.contextmanager
    def answer(
        self, url: str, sql: str
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """See `Database`."""
        if not os.path.isfile(path_of(url)):
            raise BadInputError(f"{path_of(url)} not found", key="data.query.database")
        address = f"file:{urllib.parse.quote(path_of(url))}?mode=ro"
        with _cursor(_SQLITE, address) as (cursor, failure):
            typed = {"adbc.sqlite.query.batch_rows": str(_TYPED_ROWS)}
            cursor.adbc_statement.set_options(**typed)
            yield _executed(cursor, sql, failure)


class PostgreSQL(Database):
    """A server: `postgresql://USER@HOST/DATABASE` as libpq reads it.

    Its environment counts, too: `PGPASSWORD`.
    """

    def check(self, url: str) -> None:
        """See `Database`."""
        _require(_POSTGRESQL)

    @contextlib.contextmanager
    def answer(
        self, url: str, sql: str
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """See `Database`."""
        with _cursor(_POSTGRESQL, url) as (cursor, failure):
            cursor.execute("SET TRANSACTION READ ONLY")
            yield _executed(cursor, sql, failure)


def _require(driver: str) -> None:
    require_extra(driver, "sql", "data.query", driver.replace("_", "-"))


@contextlib.contextmanager
def _cursor(package: str, address: str) -> Iterator[tuple[Any, type[Exception]]]:
    driver = importlib.import_module(f"{package}.dbapi")
    with (
        _rejections((driver.Error,), "data.query.sql"),
        contextlib.ExitStack() as stack,
    ):
        with _rejections((driver.Error,), "data.query.database"):
            connection = stack.enter_context(driver.connect(address))
            cursor = stack.enter_context(connection.cursor())
        yield cursor, driver.Error


def _executed(
    cursor: Any, sql: str, failure: type[Exception]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    def batches() -> Iterator[pa.RecordBatch]:
        with _rejections((failure, pa.ArrowException, OSError), "data.query.sql"):
            yield from reader

    cursor.execute(sql)
    reader = cursor.fetch_record_batch()
    return reader.schema, batches()


@contextlib.contextmanager
def _rejections(kinds: tuple[type[Exception], ...], key: str) -> Iterator[None]:
    """Turns exceptions of a driver into errors of a key."""
    try:
        yield
    except kinds as error:
        text = str(error)
        matched = _WORDING.search(text)
        said = next(filter(None, matched.groups()), "") if matched else text
        message = " ".join(_TAIL.sub("", said).split())
        remedy = ""
        if "Type mismatch" in message:
            remedy = (
                "A column of SQLite has the type of its first "
                f"{_TYPED_ROWS:,} values; convert it: CAST(NAME AS TEXT), or AS REAL."
            )
        raise BadInputError(message, key=key, remedy=remedy) from error
