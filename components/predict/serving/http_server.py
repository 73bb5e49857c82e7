"""REST on a TCP port, for `strategos serve`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

from strategos.components.predict.serving.answers import RequestError
from strategos.components.predict.serving.rest import Answer, Handler
from strategos.components.predict.serving.versions import Versions
from strategos.components.wording import counted

Log = Callable[[str, str, float], None]
"""Takes a request, the answer or the problem, and the seconds it took."""


class Server(ThreadingHTTPServer):
    """Answers with a thread for each connection.

    Args:
      opened: A socket that listens.
      models: The versions of the served model.
      log: Is called for each request.
    """

    daemon_threads = True

    def __init__(self, opened: socket.socket, models: Versions, log: Log):
        address = opened.getsockname()[:2]
        super().__init__(address, _Logged, bind_and_activate=False)
        self.socket.close()
        self.socket, self.models, self.log = opened, models, log
        self.server_name, self.server_port = address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports errors, but those of connections that clients have closed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Logged(Handler):
    """One connection, with a log of its requests."""

    server: Server

    def answered(
        self, status: HTTPStatus, seconds: float, result: Answer | RequestError
    ) -> None:
        """See `Handler`."""
        note = str(result) if isinstance(result, RequestError) else ""
        if isinstance(result, Answer) and result.version is not None:
            note = f"version {result.version}, {counted(result.rows, 'row')}"
        self.server.log(f"{self.command} {self.path}  {status.value}", note, seconds)
