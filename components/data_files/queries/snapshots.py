"""Snapshots of a query: a Parquet file for each span, which later runs read again.

So a run's data are files with digests, as ever: a cached node, a lineage and a
reproduced model mean the rows that were read, whatever the table has become since.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator

from strategos.components.data_files import spans
from strategos.components.data_files.queries import databases
from strategos.components.errors import BadInputError
from strategos.components.files import object_stores, patterns, storage
from strategos.components.files.filesystems import short
from strategos.components.slow_imports import pa
from strategos.components.wording import counted

_MARK = b"strategos.query"
_GROUP_ROWS = 65_536
_SILENCE = 10.0  # seconds without a line of progress
_EPOCH = datetime.date(1970, 1, 1)


@dataclasses.dataclass(frozen=True)
class Query:
    """A query that gives the rows of each span.

    Attributes:
      database: See `databases.answer`.
      sql: The query; `{SPAN}` stands for the number of a span, `{DATE}` for its day as
        `yyyy-mm-dd`.
      examples: Pattern of the files, with the same placeholder, and without wildcards.
      first: The first span: a number, or the days of a date since 1970.
    """

    database: str
    sql: str
    examples: str
    first: int = 0

    @property
    def digest(self) -> str:
        """A hash of the query and its database: 16 hex digits."""
        return hashlib.sha256(f"{self.database}\0{self.sql}".encode()).hexdigest()[:16]

    @property
    def by_day(self) -> bool:
        """Whether a span is a day."""
        return "{DATE}" in self.sql

    def of(self, number: int) -> str:
        """The query for one span."""
        text = self.sql.replace("{DATE}", self.name_of(number))
        return text.replace("{SPAN}", str(number))

    def name_of(self, number: int) -> str:
        """The day or the number of a span, for SQL and messages."""
        if not self.by_day:
            return str(number)
        return (_EPOCH + datetime.timedelta(number)).isoformat()

    def numbers(self, today: datetime.date) -> Iterable[int]:
        """The spans that may exist: days before today, or numbers from the first."""
        if self.by_day:
            return range(self.first, (today - _EPOCH).days)
        return itertools.count(self.first) if "{SPAN}" in self.sql else (0,)


def bring(
    query: Query, report: Callable[[str], None], today: datetime.date | None = None
) -> int:
    """Asks for the spans without a file, and for those of an earlier query.

    Files in which no query left its mark are never replaced. A day without rows gets no
    file, and is asked for again; among numbers, the first without rows is the end.

    Args:
      query: The query.
      report: Called with lines of progress.
      today: The day that is not over; by default the current one in UTC.

    Returns:
      The number of files that were written.

    Raises:
      BadInputError: The database rejects that, see `databases.answer`; or the columns
        are others than those of the other files; or a span that has a file of an
        earlier query now has no rows.
      OSError: A file cannot be written.
    """
    today = today or datetime.datetime.now(datetime.timezone.utc).date()
    kept = _kept(query)
    columns = next((schema for schema in kept.values() if _is_of(query, schema)), None)
    written = 0
    for number in query.numbers(today):
        earlier = kept.get(number)
        if earlier is not None and not _is_replaced(query, earlier):
            continue
        new_columns = _write(query, number, columns, report)
        if new_columns is not None:
            columns, written = new_columns, written + 1
        elif earlier is not None:
            raise _gone(query, number)
        elif not query.by_day:
            break
    if not kept and not written:
        raise BadInputError("the query has no rows", key="data.query.sql")
    return written


def _kept(query: Query) -> dict[int, pa.Schema]:
    """The schema of each file that exists, by the number of its span."""
    try:
        existing = spans.find_spans(query.examples)
    except spans.NoFilesError:
        return {}
    schemas = object_stores.each(_schema_of, [span.files[0] for span in existing])
    return {span.number: schema for span, schema in zip(existing, schemas, strict=True)}


def _schema_of(path: str) -> pa.Schema:
    try:
        with storage.open_arrow(path) as file:
            return pa.parquet.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise BadInputError(
            f"{short(path)} cannot be read as a Parquet file: {error}",
            key="data.examples",
            remedy="Remove it: `data.query` then asks for its rows again.",
        ) from error


def _mark(schema: pa.Schema) -> bytes:
    return (schema.metadata or {}).get(_MARK, b"")


def _is_of(query: Query, schema: pa.Schema) -> bool:
    return _mark(schema) == query.digest.encode()


def _is_replaced(query: Query, schema: pa.Schema) -> bool:
    """Whether a file is of another query; one that was put there by hand stays."""
    return bool(_mark(schema)) and not _is_of(query, schema)


def _write(
    query: Query,
    number: int,
    columns: pa.Schema | None,
    report: Callable[[str], None],
) -> pa.Schema | None:
    """Writes the rows of a span; returns their schema, or None if there are none."""
    path, start = patterns.path_of(query.examples, number), time.monotonic()
    with databases.answer(query.database, query.of(number)) as batches:
        groups = _groups(batches, path, report)
        first = next(groups, None)
        if first is None:
            return None
        if columns is not None:
            _reject_other_columns(path, first.schema, columns)
        schema = first.schema.with_metadata({_MARK: query.digest})
        rows = 0
        with (
            storage.create(path) as out,
            pa.parquet.ParquetWriter(out, schema, version="2.6") as file,  # nanoseconds
        ):
            for group in itertools.chain([first], groups):
                file.write_table(group.replace_schema_metadata(schema.metadata))
                rows += group.num_rows
    seconds = time.monotonic() - start
    report(f"data.query: {short(path)}: {counted(rows, 'row')} in {seconds:.1f} s")
    return schema


def _groups(
    batches: Iterator[pa.RecordBatch], path: str, report: Callable[[str], None]
) -> Iterator[pa.Table]:
    """Cuts rows into groups of one size: equal rows make equal files."""
    waiting: list[pa.RecordBatch] = []
    rows, total, told = 0, 0, time.monotonic()
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        total += batch.num_rows
        if time.monotonic() - told > _SILENCE:
            told = time.monotonic()
            report(f"data.query: {short(path)}: {counted(total, 'row')} so far")
        while rows >= _GROUP_ROWS:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, _GROUP_ROWS).combine_chunks()
            waiting = table.slice(_GROUP_ROWS).to_batches()
            rows -= _GROUP_ROWS
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _reject_other_columns(path: str, schema: pa.Schema, columns: pa.Schema) -> None:
    missing = [name for name in columns.names if name not in schema.names]
    new = [name for name in schema.names if name not in columns.names]
    if missing or new:
        parts = [
            f"{what}: {', '.join(names)}"
            for what, names in (("missing", missing), ("new", new))
            if names
        ]
        raise BadInputError(
            f"the columns for {short(path)} are not those of the other files; "
            f"{'; '.join(parts)}",
            key="data.query.sql",
            remedy="Name the columns in the query: all spans are then asked for again.",
        )


def _gone(query: Query, number: int) -> BadInputError:
    path = patterns.path_of(query.examples, number)
    return BadInputError(
        f"{short(path)} has the rows of an earlier query; this one has none for it",
        key="data.query.sql",
        remedy="Remove the file, or write the earlier query.",
    )
