"""Databases that answer a query in Arrow batches, by the scheme of their URL."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from strategos.components.data_files.queries import adbc, bigquery
from strategos.components.errors import BadInputError, require_extra
from strategos.components.slow_imports import pa

_TYPE = b"ADBC:postgresql:typname"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of database.

    Attributes:
      module: What must be installed.
      answer: Runs a query that may only read; gives the schema of the answer (without
        columns where there are no rows) and its batches. Raises BadInputError.
      number: Its type of floating-point numbers.
      text: Its type of text.
    """

    module: str
    answer: Callable[
        [str, str],
        contextlib.AbstractContextManager[tuple[pa.Schema, Iterator[pa.RecordBatch]]],
    ]
    number: str = "double precision"
    text: str = "text"


KINDS = {
    "sqlite": Kind(adbc.SQLITE, adbc.of_sqlite),
    "postgresql": Kind(adbc.POSTGRESQL, adbc.of_postgresql),
    "bigquery": Kind(bigquery.PACKAGE, bigquery.answer, "FLOAT64", "STRING"),
}
"""By the scheme of the URL."""


def require_driver(url: str) -> None:
    """Raises BadInputError if the driver of a URL's database is not installed."""
    module = _kind(url).module
    package = module.replace("_", "-").replace(".", "-")
    require_extra(module, "sql", "data.query", package)


@contextlib.contextmanager
def answer(url: str, sql: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """Runs a query; yields its rows, with types that a data file can hold.

    Args:
      url: `sqlite:///FOLDER/FILE`; `postgresql://USER@HOST/DATABASE` as libpq reads it,
        with its environment: `PGPASSWORD`; `bigquery://PROJECT/DATASET`.
      sql: A query.

    Raises:
      BadInputError: The driver is not installed, the database does not answer, or it
        rejects the query; or a column has no name, the name of another one, or a type
        that a feature cannot have.
    """
    require_driver(url)
    kind = _kind(url)
    with kind.answer(url, sql.strip().rstrip(";")) as (answered, batches):
        schema = _schema(answered, kind)
        yield (_plain(batch, schema) for batch in batches)


def _kind(url: str) -> Kind:
    return KINDS[url.partition(":")[0]]


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        _cast(column, field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: Any, data_type: pa.DataType) -> pa.Array:
    stored = getattr(column, "storage", column)  # of an extension type
    return stored.cast(data_type)


def _schema(answered: pa.Schema, kind: Kind) -> pa.Schema:
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


def _type_of(field: pa.Field, kind: Kind) -> pa.DataType:
    """Decimal numbers become float64: as text they would be categories."""
    from strategos.components.data_files.values import features

    database_type = _database_type(field)
    if database_type == "numeric" or pa.types.is_decimal(field.type):
        return pa.float64()
    if pa.types.is_list(field.type) and pa.types.is_decimal(field.type.value_type):
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
