"""ML Metadata's gRPC service, which its Python package does not contain.

    python metadata_server.py ADDRESS READY

Its store in C++ does the work: the bytes of requests and answers pass through, by the
extension module that `ml_metadata` itself uses without a server. READY is created when
the service is up.
"""

from __future__ import annotations

import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import (
    metadata_store as store_methods,
)
from ml_metadata.proto import metadata_store_pb2 as messages

PORT = 8080
_SERVICE = "ml_metadata.MetadataStoreService"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Methods(grpc.GenericRpcHandler):
    """Hands every request to the method of its name.

    Args:
      store: What `CreateMetadataStore` returned.
    """

    def __init__(self, store):
        self._store = store
        self._lock = threading.Lock()  # a store is for one thread

    def service(self, details):
        """See GenericRpcHandler."""
        _, service, name = details.method.split("/")
        method = getattr(store_methods, name, None)
        if service != _SERVICE or method is None:
            return None

        def answer(request, context):
            with self._lock:
                body, message, code = method(self._store, request)
            if code:
                found = _CODES.get(code, grpc.StatusCode.UNKNOWN)
                context.abort(found, message.decode())
            return body

        return grpc.unary_unary_rpc_method_handler(answer)


def main() -> None:
    """Serves until it is killed."""
    address, ready = sys.argv[1:]
    database = messages.ConnectionConfig()
    database.mysql.host, database.mysql.port = address, 3306
    database.mysql.database = "metadb"
    database.mysql.user = database.mysql.password = "kfp"
    store = store_methods.CreateMetadataStore(
        database.SerializeToString(), messages.MigrationOptions().SerializeToString()
    )
    server = grpc.server(
        futures.ThreadPoolExecutor(4),
        handlers=[Methods(store)],
        options=[("grpc.max_receive_message_length", -1)],
    )
    server.add_insecure_port(f"{address}:{PORT}")
    server.start()
    Path(ready).touch()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
