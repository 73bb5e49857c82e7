"""Databases that answer a query in Arrow batches, through their ADBC drivers.

https://arrow.apache.org/adbc: the drivers convert in C, column by column. A query runs
in a transaction that may only read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from strategos.components.errors import BadInputError, require_extra
from strategos.components.slow_imports import pa

_TYPE = b"ADBC:postgresql:typname"
# A column of SQLite has the type of its values in so many first rows.
_TYPED_ROWS = 65_536
_WORDING = re.compile(r"(?:ERROR|FATAL): +(.*)|\[(?:SQLite|libpq)\] (.*)", re.DOTALL)
_TAIL = re.compile(
    r"\s*(?:LINE \d+:.*|Query was:.*|\nquery:.*|\. SQLSTATE.*)", re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of database.

    Attributes:
      driver: Package of the ADBC driver.
      address: The driver's address for a URL.
      first: A statement that runs before the query, in its transaction; "" for none.
      options: Of the statement.
    """

    driver: str
    address: Callable[[str], str]
    first: str = ""
    options: MappingProxyType[str, str] = MappingProxyType({})


def path_of(url: str) -> str:
    """The path in the URL of an SQLite file: `a.db` of `sqlite:///a.db`."""
    return url.removeprefix("sqlite:///")


def _read_only(url: str) -> str:
    return f"file:{urllib.parse.quote(path_of(url))}?mode=ro"


KINDS = {
    "sqlite": _Kind(
        "adbc_driver_sqlite",
        _read_only,
        options=MappingProxyType({"adbc.sqlite.query.batch_rows": str(_TYPED_ROWS)}),
    ),
    "postgresql": _Kind(
        "adbc_driver_postgresql", str, first="SET TRANSACTION READ ONLY"
    ),
}
"""By the scheme of the URL."""


def require_driver(url: str) -> None:
    """Raises BadInputError if the driver of a URL's database is not installed."""
    driver = KINDS[url.partition(":")[0]].driver
    require_extra(driver, "sql", "data.query", driver.replace("_", "-"))


@contextlib.contextmanager
def answer(url: str, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """Runs a query; yields its rows, with types that a data file can hold.

    Args:
      url: `sqlite:///FOLDER/FILE`, or `postgresql://USER@HOST/DATABASE` as libpq reads
        it, with its environment: `PGPASSWORD`.
      sql: A query.

    Raises:
      BadInputError: The driver is not installed, the database does not answer, or it
        rejects the query; or a column has no name, the name of another one, or a type
        that a feature cannot have.
    """
    kind = KINDS[url.partition(":")[0]]
    require_driver(url)
    driver = importlib.import_module(f"{kind.driver}.dbapi")
    if kind is KINDS["sqlite"] and not os.path.isfile(path_of(url)):
        raise BadInputError(f"{path_of(url)} not found", key="data.query.database")
    with (
        _rejections((driver.Error,), "data.query.sql"),
        contextlib.ExitStack() as stack,
    ):
        with _rejections((driver.Error,), "data.query.database"):
            connection = stack.enter_context(driver.connect(kind.address(url)))
            cursor = stack.enter_context(connection.cursor())
        if kind.first:
            cursor.execute(kind.first)
        cursor.adbc_statement.set_options(**kind.options)
        cursor.execute(sql.strip().rstrip(";"))
        reader = cursor.fetch_record_batch()
        yield _plain(reader, _schema(reader.schema), driver.Error)


def _plain(
    reader: pa.RecordBatchReader, schema: pa.Schema, failure: type[Exception]
) -> Iterator[pa.RecordBatch]:
    batches = iter(reader)
    while True:
        with _rejections((failure, pa.ArrowException, OSError), "data.query.sql"):
            batch = next(batches, None)
        if batch is None:
            return
        columns = [
            _cast(column, field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: Any, data_type: pa.DataType) -> pa.Array:
    stored = getattr(column, "storage", column)  # of an extension type
    return stored.cast(data_type)


def _schema(answered: pa.Schema) -> pa.Schema:
    """The types of the columns in a file.

    Raises:
      BadInputError: See `answer`.
    """
    names = answered.names
    for position, name in enumerate(names, 1):
        if not name.strip() or name == "?column?":
            raise _misnamed(f"column {position} of the answer has no name")
        if names.count(name) > 1:
            raise _misnamed(f"{names.count(name)} columns have the name `{name}`")
    return pa.schema([pa.field(each.name, _type_of(each)) for each in answered])


def _misnamed(message: str) -> BadInputError:
    return BadInputError(
        message, key="data.query.sql", remedy="Name it: SELECT … AS NAME."
    )


def _type_of(field: pa.Field) -> pa.DataType:
    """PostgreSQL's `numeric` becomes float64: as text it would be a category."""
    from strategos.components.data_files.values import features

    database_type = _database_type(field)
    if database_type == "numeric":
        return pa.float64()
    stored = getattr(field.type, "storage_type", field.type)
    inner = getattr(stored, "value_field", None)
    unknown = database_type or (inner and _database_type(inner) and f"{inner.type}[]")
    with contextlib.suppress(TypeError):
        features.kind_of(stored)
        if not unknown:
            return stored
    name = field.name
    raise BadInputError(
        f"column `{name}` has the type {unknown or stored}, which no feature can have",
        key="data.query.sql",
        remedy=f"Convert it: CAST({name} AS double precision), or AS text.",
    )


def _database_type(field: pa.Field) -> str:
    """PostgreSQL's name of a type that Arrow lacks; "" for others."""
    return (field.metadata or {}).get(_TYPE, b"").decode()


@contextlib.contextmanager
def _rejections(kinds: tuple[type[Exception], ...], key: str) -> Iterator[None]:
    """Raises what a driver raises as errors of a key."""
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
