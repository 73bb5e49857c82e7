"""BigQuery: its Storage Read API gives the rows of an answer in Arrow batches.

https://cloud.google.com/bigquery/docs/reference/storage
"""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from strategos.components.data_files.queries.database import Database
from strategos.components.errors import BadInputError, require_extra
from strategos.components.services import google_api
from strategos.components.slow_imports import pa

EMULATOR, STORAGE_EMULATOR = "BIGQUERY_EMULATOR_HOST", "BIGQUERY_STORAGE_EMULATOR_HOST"
"""Variables with the addresses of an emulator: `http://HOST:PORT` of its REST API, as
Google's client reads it, and `HOST:PORT` of its gRPC."""
_SCOPE = "https://www.googleapis.com/auth/bigquery"
_PATIENCE = 30.0  # seconds of trying again where the service does not answer
_ROLES = (
    "Give the account the roles `roles/bigquery.jobUser` and "
    "`roles/bigquery.readSessionUser` in the project, and "
    "`roles/bigquery.dataViewer` for the tables."
)


class BigQuery(Database):
    """A project: `bigquery://PROJECT`; in `bigquery://PROJECT/DATASET` are the tables
    that are named without a data set.
    """

    number, text = "FLOAT64", "STRING"

    def check(self, url: str) -> None:
        """See `Database`."""
        package = "google-cloud-bigquery-storage"
        require_extra("google.cloud.bigquery_storage", "sql", "data.query", package)

    @contextlib.contextmanager
    def answer(
        self, url: str, sql: str
    ) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        """See `Database`.

        A dry run, which costs nothing, checks the query first: nothing but a SELECT
        runs. One stream gives all rows, so that those of ORDER BY keep their order.
        """
        from google.cloud import bigquery

        with _rejections(), contextlib.ExitStack() as stack:
            client, storage = _clients(url, stack)
            dataset = urllib.parse.urlsplit(url).path.strip("/")
            named = f"{client.project}.{dataset}" if dataset else None
            config = bigquery.QueryJobConfig(default_dataset=named, dry_run=True)
            retry = bigquery.DEFAULT_RETRY.with_timeout(_PATIENCE)
            planned = client.query(sql, job_config=config, retry=retry, job_retry=None)
            _check(planned.statement_type)
            config.dry_run = False
            rows = client.query(sql, job_config=config).result()
            batches = rows.to_arrow_iterable(
                bqstorage_client=storage, max_stream_count=1
            )
            first = next(batches, None)
            if first is None:
                yield pa.schema([]), iter(())
            else:
                yield first.schema, _all(first, batches)


def _check(kind: str) -> None:
    if kind != "SELECT":
        raise BadInputError(
            f"BigQuery reads it as {kind}, and only SELECT runs", key="data.query.sql"
        )


def _all(
    first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with _rejections():
        yield first
        yield from others


def _clients(url: str, stack: contextlib.ExitStack) -> tuple[Any, Any]:
    """Clients of BigQuery and of its storage, with the same credentials.

    An emulator needs none; its addresses are in two variables of the environment.
    """
    import google.auth
    import grpc
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery, bigquery_storage
    from google.cloud.bigquery_storage_v1.services.big_query_read import transports

    project = urllib.parse.urlsplit(url).netloc
    if not os.environ.get(EMULATOR):
        credentials, _ = google.auth.default(scopes=[_SCOPE])
        storage = bigquery_storage.BigQueryReadClient(credentials=credentials)
    else:
        credentials = AnonymousCredentials()
        channel = grpc.insecure_channel(os.environ[STORAGE_EMULATOR])
        transport = transports.BigQueryReadGrpcTransport(channel=channel)
        storage = bigquery_storage.BigQueryReadClient(transport=transport)
    client = bigquery.Client(project, credentials=credentials)
    stack.enter_context(contextlib.closing(client))
    stack.enter_context(contextlib.closing(storage.transport))
    return client, storage


@contextlib.contextmanager
def _rejections() -> Iterator[None]:
    with google_api.failures(_rejected):
        yield


def _rejected(failure: google_api.ApiFailure) -> Exception:
    of_query = failure.reason in (400, 404)
    subject = "BigQuery rejects the query" if of_query else "BigQuery"
    what = re.sub(r"\s+Location: .*Job ID: .*", "", failure.what)
    return BadInputError(
        f"{subject}: {what}",
        key="data.query.sql" if of_query else "data.query.database",
        remedy={**google_api.REMEDIES, 403: _ROLES}.get(failure.reason, ""),
    )
