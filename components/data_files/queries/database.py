"""The interface of databases that `data.query` asks.

Usage, in a package with the entry point `lake = "package.module:Lake"` in the group
`strategos.databases`, for `data.query.database: lake://HOST/NAME`:

    class Lake(Database):
        @contextlib.contextmanager
        def answer(self, url, sql):
            with lakes.connect(url) as connection:
                reader = connection.execute(sql).fetch_record_batches()
                yield reader.schema, iter(reader)
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator

from strategos.components.slow_imports import pa


class Database(abc.ABC):
    """A kind of database, by the scheme of its URL.

    Attributes:
      number: Its SQL type of floating-point numbers, for messages.
      text: Its SQL type of text.
    """

    number: str = "double precision"
    text: str = "text"

    def check(self, url: str) -> None:
        """Rejects, before a run, a database that cannot answer; connects to nothing.

        Args:
          url: Of the database, with its scheme.

        Raises:
          BadInputError: Its driver is not installed, or it has no such URL.
        """
        del url  # all are accepted by default

    @abc.abstractmethod
    def answer(
        self, url: str, sql: str
    ) -> contextlib.AbstractContextManager[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """Runs a query that may only read.

        Args:
          url: Of the database, with its scheme.
          sql: The query, without a semicolon at its end.

        Returns:
          The columns of the answer (none where there are no rows), and its rows in
          batches of bounded size. Text, bytes, numbers, decimals, times, and lists of
          those are values of features.

        Raises:
          BadInputError: The database does not answer, or it rejects the query, also
            while the batches are read; the error has the key `data.query.database` or
            `data.query.sql`.
        """
