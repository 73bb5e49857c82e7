"""Tables of Delta Lake and Apache Iceberg as the data of a pipeline, by `data.query`.

Usage, with this file beside the YAML:

    plugins: [tables]
    data:
      examples: data/orders-{DATE}.parquet
      query:
        database: delta:///lake/orders
        sql: SELECT price, shop, paid FROM rows WHERE day = '{DATE}'
        first: 2024-03-01

Delta needs `pip install 'deltalake>=1.1'`, Iceberg `pip install 'pyiceberg[pyarrow]'`,
and pyarrow 14 or newer, so Python 3.11.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib import util
from typing import TYPE_CHECKING

import pyarrow as pa

from strategos import BadInputError, Database

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

_PARTS = re.compile(
    r"SELECT\s+(?P<columns>\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(?P<table>[\w.]+)"
    r"(?:\s+WHERE\s+(?P<where>.*))?",
    re.IGNORECASE | re.DOTALL,
)


class Delta(Database):
    """A table of Delta Lake: `delta:///FOLDER`, or `delta://s3://BUCKET/FOLDER`.

    DataFusion, which is in deltalake, runs the query; its table is called `rows`. It
    reads only the files of the partitions that a condition leaves.
    """

    number, text = "DOUBLE", "VARCHAR"

    def check(self, url: str) -> None:
        """See `Database`."""
        _require("deltalake")

    @contextlib.contextmanager
    def answer(
        self, url: str, sql: str
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """See `Database`."""
        from deltalake import DeltaTable, QueryBuilder

        table = DeltaTable(url.removeprefix("delta://"))
        answered = QueryBuilder().register("rows", table).execute(sql)
        reader = pa.RecordBatchReader.from_stream(answered)
        yield _plain(reader)


class Iceberg(Database):
    """A catalog of pyiceberg's configuration: `iceberg://CATALOG`.

    pyiceberg reads columns of one table, `SELECT a, b FROM namespace.table`, by a
    condition of its own syntax (https://py.iceberg.apache.org/api/#query-data): it
    reads only the files in which rows can meet it.
    """

    def check(self, url: str) -> None:
        """See `Database`."""
        _require("pyiceberg")

    @contextlib.contextmanager
    def answer(
        self, url: str, sql: str
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """See `Database`."""
        from pyiceberg.catalog import load_catalog

        parts = _PARTS.fullmatch(sql)
        if not parts:
            raise BadInputError(
                "Iceberg tables are read by queries of one form",
                key="data.query.sql",
                received=sql,
                expected="SELECT a, b FROM namespace.table WHERE condition",
            )
        condition = _condition(parts["where"])
        table = load_catalog(url.removeprefix("iceberg://")).load_table(parts["table"])
        columns = tuple(re.split(r"\s*,\s*", parts["columns"]))
        scan = table.scan(row_filter=condition, selected_fields=columns)
        yield _plain(scan.to_arrow_batch_reader())


def _condition(text: str | None) -> BooleanExpression:
    from pyiceberg.expressions import AlwaysTrue, parser

    try:
        return parser.parse(text) if text else AlwaysTrue()
    except Exception as error:
        raise BadInputError(
            "pyiceberg does not know such a condition",
            key="data.query.sql",
            received=text,
            expected="e.g. day = '2024-03-01' and price > 0",
        ) from error


def _plain(
    reader: pa.RecordBatchReader,
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Text and lists in the types of Arrow that all readers know."""
    fields = [pa.field(each.name, _plain_type(each.type)) for each in reader.schema]
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield batch.cast(schema)

    return schema, batches()


def _plain_type(given: pa.DataType) -> pa.DataType:
    kinds = pa.types
    if kinds.is_list(given) or kinds.is_large_list(given):
        return pa.list_(_plain_type(given.value_type))
    if kinds.is_large_string(given) or kinds.is_string_view(given):
        return pa.string()
    if kinds.is_large_binary(given) or kinds.is_binary_view(given):
        return pa.binary()
    return given


def _require(package: str) -> None:
    if util.find_spec(package) is None or not hasattr(
        pa.RecordBatchReader, "from_stream"
    ):
        raise BadInputError(
            f"{package} or pyarrow 14 is not installed",
            key="data.query.database",
            remedy=f"Install {package}, on Python 3.11 or newer.",
        )


PLUGINS = {"strategos.databases": {"delta": Delta, "iceberg": Iceberg}}
