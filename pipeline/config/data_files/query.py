"""The section `data.query`: a database with rows that become data files."""

from __future__ import annotations

import datetime
import re
import urllib.parse
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from strategos.components.data_files.queries import adbc, databases, snapshots
from strategos.components.files import patterns
from strategos.components.wording import choices, did_you_mean
from strategos.pipeline.config.data_files.split import as_text
from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import received, reject
from strategos.pipeline.config.types import LARGEST, Section, absolute, main_file

_EPOCH = datetime.date(1970, 1, 1)
# https://cloud.google.com/bigquery/docs/datasets#dataset-naming; of projects also those
# within a domain.
_BIGQUERY = re.compile(r"[a-z][a-z0-9.:-]+(/\w*)?")
_FIRST = "a number of at least 0, or a day such as 2024-03-01"


def _is_first(value: int | str) -> int | str:
    if isinstance(value, int) and 0 <= value <= LARGEST:
        return value
    try:
        return datetime.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise reject(received=repr(value), expected=_FIRST) from None


First = Annotated[
    int | str,
    BeforeValidator(as_text),
    Allowed(_FIRST),
    Field(json_schema_extra={"type": ["string", "integer"]}),
    AfterValidator(_is_first),
]


class Query(Section):
    """A query; its rows are kept as Parquet files, one for each span."""

    database: str = Field(
        examples=["postgresql://reader@db.example/shop"],
        description="`postgresql://USER@HOST/DATABASE`, `bigquery://PROJECT/DATASET` "
        "(the data set of tables that are named without one; optional), or "
        "`sqlite:///FILE`. The password of PostgreSQL is read from `PGPASSWORD` or "
        "`~/.pgpass`, BigQuery's account is that of Google's application default "
        "credentials.",
    )
    sql: str = Field(
        examples=["SELECT * FROM orders WHERE day = '{DATE}'"],
        description="The query. It has the placeholder of `data.examples`: `{DATE}` "
        "stands for a day as `2024-03-01`, `{SPAN}` for a number.",
    )
    first: First | None = Field(
        None,
        description="The first span, a day or a number (by default 1). A run asks for "
        "the days from it to yesterday (UTC), or for the numbers from it to the first "
        "without rows, unless they have a file.",
    )

    @field_validator("database")
    @classmethod
    def _is_known(cls, url: str, info: ValidationInfo) -> str:
        scheme, _, rest = url.partition("://")
        if scheme not in databases.DATABASES or not rest:
            near = did_you_mean(scheme, databases.DATABASES)
            raise reject(
                received=repr(url),
                expected=f"a URL of {choices(databases.DATABASES)}",
                remedy=near or "Write, for example, `sqlite:///shop.db`.",
            )
        if urllib.parse.urlsplit(url).password or re.search(r"[?&]password=", url):
            raise reject(
                "the URL has a password, which does not belong into a file",
                remedy="Take it out, and set PGPASSWORD or write ~/.pgpass.",
            )
        if scheme == "bigquery" and not _BIGQUERY.fullmatch(rest):
            raise reject(
                received=repr(url),
                expected="`bigquery://PROJECT` or `bigquery://PROJECT/DATASET`",
            )
        if scheme != "sqlite":
            return url
        if not rest.startswith("/") or not adbc.path_of(url):
            raise reject(
                received=repr(url), expected="the path of a file: `sqlite:///shop.db`"
            )
        folder = main_file(info.context).parent
        return f"sqlite:///{absolute(adbc.path_of(url), folder)}"

    @field_validator("sql")
    @classmethod
    def _asks(cls, sql: str) -> str:
        bare = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
        if not re.match(r"[\s(]*(SELECT|WITH|VALUES|TABLE)\b", bare, re.IGNORECASE):
            raise reject(received=received(sql), expected="a query: SELECT …")
        return sql

    @property
    def file(self) -> str:
        """The file of an SQLite database; "" for a server."""
        is_file = self.database.startswith("sqlite:")
        return adbc.path_of(self.database) if is_file else ""

    def snapshots(self, examples: str) -> snapshots.Query:
        """The query in the form that components take.

        Args:
          examples: `data.examples`, after `check_files`.
        """
        first = self.first if self.first is not None else 1
        if isinstance(first, str):
            first = (datetime.date.fromisoformat(first) - _EPOCH).days
        return snapshots.Query(self.database, self.sql, examples, first)

    def check_files(self, examples: str) -> None:
        """Rejects files that this query cannot fill.

        Args:
          examples: `data.examples`.

        Raises:
          PydanticCustomError: Names the problem.
        """
        wanted = patterns.placeholder(examples)
        if not examples.endswith(".parquet") or re.search(r"[*?\[]|\{VER", examples):
            raise reject(
                "a query fills one Parquet file for each span, and `data.examples` is "
                f"{examples}",
                remedy="Write, for example, `examples: data/orders-{DATE}.parquet`.",
            )
        for name in ("DATE", "SPAN"):
            if (wanted == name) != (f"{{{name}}}" in self.sql):
                raise reject(
                    f"{{{name}}} stands in only one of `data.examples` and `sql`",
                    remedy="Both have the same placeholder, or none.",
                )
        if wanted == "DATE" and not isinstance(self.first, str):
            raise reject(
                "the days need a first one",
                remedy="Add, for example, `first: 2024-03-01`.",
            )
        if wanted != "DATE" and isinstance(self.first, str):
            raise reject(f"{self.first} is a day, and `data.examples` has no {{DATE}}")
