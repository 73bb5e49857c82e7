"""Databases that answer a query in Arrow batches, by the scheme of their URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from strategos.components.data_files.queries.database import Database
from strategos.components.errors import BadInputError, UserError, first_line, mask
from strategos.components.plugins import Registry
from strategos.components.slow_imports import pa

_TYPE = b"ADBC:postgresql:typname"


DATABASES: Registry[Database] = Registry(
    "strategos.databases",
    Database,
    {
        "sqlite": "strategos.components.data_files.queries.adbc:Sqlite",
        "postgresql": "strategos.components.data_files.queries.adbc:PostgreSQL",
        "bigquery": "strategos.components.data_files.queries.bigquery:BigQuery",
    },
)
"""By the scheme of `data.query.database`."""


def scheme(url: str) -> str:
    """The name in `DATABASES` for a URL."""
    return url.partition(":")[0]


def check(url: str) -> None:
    """Rejects a database that cannot answer here; see `Database.check`."""
    DATABASES[scheme(url)].check(url)


@contextlib.contextmanager
def answer(url: str, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """Runs a query; yields its rows, with types that a data file can hold.

    Args:
      url: With a scheme of `DATABASES`.
      sql: A query.

    Raises:
      BadInputError: The driver is not installed, the database does not answer, or it
        rejects the query; or a column has no name, the name of another one, or a type
        that a feature cannot have.
    """
    database = DATABASES[scheme(url)]
    database.check(url)
    with contextlib.ExitStack() as stack:
        with _failures(url):
            answered, batches = stack.enter_context(
                database.answer(url, sql.strip().rstrip(";"))
            )
        yield _converted(batches, _schema(answered, database), url)


@contextlib.contextmanager
def _failures(url: str) -> Iterator[None]:
    """Turns exceptions of a plug-in's reader into errors of the query."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise BadInputError(
            f"{scheme(url)}: {first_line(mask(str(error)))[:300]}", key="data.query.sql"
        ) from error


def _converted(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, url: str
) -> Iterator[pa.RecordBatch]:
    with _failures(url):
        for batch in batches:
            yield _plain(batch, schema)


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        _cast(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: Any, data_type: pa.DataType) -> pa.Array:
    stored = getattr(column, "storage", column)  # of an extension type
    return stored.cast(data_type)


def _schema(answered: pa.Schema, kind: Database) -> pa.Schema:
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
    return pa.schema([pa.field(each.name, _type_of(each, kind)) for each in answered])


def _misnamed(message: str) -> BadInputError:
    return BadInputError(
        message, key="data.query.sql", remedy="Name it: SELECT … AS NAME."
    )


def _type_of(field: pa.Field, kind: Database) -> pa.DataType:
    """Decimal numbers become float64: as text they would be categories."""
    from strategos.components.data_files.values import arrow_types, features

    database_type = _database_type(field)
    if database_type == "numeric" or pa.types.is_decimal(field.type):
        return pa.float64()
    is_list = arrow_types.is_list(field.type)
    if is_list and pa.types.is_decimal(field.type.value_type):
        return pa.list_(pa.float64())
    stored = getattr(field.type, "storage_type", field.type)
    inner = getattr(stored, "value_field", None)
    unknown = database_type or (inner and _database_type(inner) and f"{inner.type}[]")
    with contextlib.suppress(TypeError):
        features.kind_of(stored)
        if not unknown:
            return stored
    name, remedy = field.name, "Convert it: CAST({0} AS {1}), or AS {2}."
    if pa.types.is_struct(stored):
        remedy = f"Select its fields: {{0}}.{stored[0].name} AS {stored[0].name}."
    raise BadInputError(
        f"column `{name}` has the type {unknown or stored}, which no feature can have",
        key="data.query.sql",
        remedy=remedy.format(name, kind.number, kind.text),
    )


def _database_type(field: pa.Field) -> str:
    """PostgreSQL's name of a type that Arrow lacks; "" for others."""
    return (field.metadata or {}).get(_TYPE, b"").decode()
