"""A fake of BigQuery: its REST API for queries and its gRPC for the rows of answers."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

_ROWS = 3  # of a message
_NAMES = {
    pa.int64(): "INTEGER",
    pa.float64(): "FLOAT",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "DATETIME",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.decimal128(38, 9): "NUMERIC",
}


class BigQuery:
    """Answers queries of one project.

    Attributes:
      environment: What leads Google's clients to it.
      asked: The queries that ran, with their data set.
      message: Of the error that each request gets from now on, with its code.
    """

    def __init__(self, answer: Callable[[str], pa.Table]):
        """Starts it.

        Args:
          answer: The answer to a query; a ValueError rejects it.
        """
        self.asked: list[tuple[str, str]] = []
        self.failure: tuple[int, str] | None = None
        self._answer, self._tables = answer, {}
        self._rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._rest.serve_forever, daemon=True).start()
        self._storage = grpc.server(futures.ThreadPoolExecutor(4))
        self._storage.add_generic_rpc_handlers((self._service(),))
        port = self._storage.add_insecure_port("127.0.0.1:0")
        self._storage.start()
        self.environment = {
            "BIGQUERY_EMULATOR_HOST": f"http://127.0.0.1:{self._rest.server_port}",
            "BIGQUERY_STORAGE_EMULATOR_HOST": f"127.0.0.1:{port}",
        }

    def down(self) -> None:
        """Ends it."""
        self._rest.shutdown()
        self._rest.server_close()
        self._storage.stop(None)

    def _started(self, job: dict[str, Any]) -> dict[str, Any]:
        """Runs the query of a job resource; returns the resource when it is done."""
        settings = job["configuration"]["query"]
        dataset = settings.get("defaultDataset", {}).get("datasetId", "")
        sql, is_dry = settings["query"], job["configuration"].get("dryRun", False)
        kind = sql.split()[0].upper().replace("WITH", "SELECT")
        if kind == "SELECT":
            table = self._answer(sql)
            name = f"answer_{len(self._tables)}"
            settings["destinationTable"] = {
                **{"projectId": "shop", "datasetId": "_kept", "tableId": name}
            }
            if not is_dry:
                self._tables[name] = table
                self._tables[job["jobReference"]["jobId"]] = table
                self.asked.append((dataset, sql))
        return {
            **job,
            "status": {"state": "DONE"},
            "statistics": {"query": {"statementType": kind.rstrip(";")}},
        }

    def _results(self, job_id: str) -> dict[str, Any]:
        table = self._tables[job_id]
        return {
            "jobComplete": True,
            "jobReference": {"projectId": "shop", "jobId": job_id},
            "schema": {"fields": [_field(each) for each in table.schema]},
            "totalRows": str(table.num_rows),
        }

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        fake, jobs = self, {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                job = json.loads(self.rfile.read(length))
                self._send(lambda: jobs.setdefault(_id(job), fake._started(job)))

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                name = path.rpartition("/")[2]
                results = "/queries/" in path
                self._send(lambda: fake._results(name) if results else jobs[name])

            def _send(self, make: Callable[[], dict[str, Any]]) -> None:
                code, body = 200, {}
                try:
                    if fake.failure:
                        code, message = fake.failure
                        body = {"error": {"code": code, "message": message}}
                    else:
                        body = make()
                except ValueError as error:
                    code, body = 400, {"error": {"code": 400, "message": str(error)}}
                content = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _service(self) -> grpc.GenericRpcHandler:
        def session(request: Any, _: Any) -> Any:
            table = self._tables[request.read_session.table.rpartition("/")[2]]
            name = request.read_session.table
            # As many streams as are allowed: a reader of several mixes the rows.
            names = [f"{name}/{n}" for n in range(request.max_stream_count or 8)]
            streams = [{"name": each} for each in names if table.num_rows]
            return types.ReadSession(arrow_schema=_schema(table), streams=streams)

        def rows(request: Any, _: Any) -> Any:
            name = request.read_stream.split("/")[-2]
            table = self._tables[name]
            for batch in table.to_batches(_ROWS):
                data = {"serialized_record_batch": batch.serialize().to_pybytes()}
                yield types.ReadRowsResponse(
                    arrow_record_batch=data,
                    arrow_schema=_schema(table),
                    row_count=batch.num_rows,
                )

        handlers = {
            "CreateReadSession": grpc.unary_unary_rpc_method_handler(
                session,
                types.CreateReadSessionRequest.deserialize,
                types.ReadSession.serialize,
            ),
            "ReadRows": grpc.unary_stream_rpc_method_handler(
                rows,
                types.ReadRowsRequest.deserialize,
                types.ReadRowsResponse.serialize,
            ),
        }
        name = "google.cloud.bigquery.storage.v1.BigQueryRead"
        return grpc.method_handlers_generic_handler(name, handlers)


def _id(job: dict[str, Any]) -> str:
    return job["jobReference"]["jobId"]


def _schema(table: pa.Table) -> dict[str, bytes]:
    return {"serialized_schema": table.schema.serialize().to_pybytes()}


def _field(field: pa.Field) -> dict[str, Any]:
    repeated = pa.types.is_list(field.type)
    data_type = field.type.value_type if repeated else field.type
    mode = "REPEATED" if repeated else "NULLABLE"
    if pa.types.is_struct(data_type):
        inner = [_field(data_type[n]) for n in range(data_type.num_fields)]
        return {"name": field.name, "type": "RECORD", "mode": mode, "fields": inner}
    return {"name": field.name, "type": _NAMES[data_type], "mode": mode}
