"""The process that keeps a pushed model loaded for `strategos predict`.

It answers the requests of `serving.rest` on a socket of the root's state folder. The
model has the name of the push folder.

The process ends when it was idle for five minutes, when its socket is removed, e.g.
with the root, or when a client of another version of Strategos or TensorFlow asks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from typing import Any, NoReturn

from strategos.components import processes
from strategos.components.errors import UserError
from strategos.components.predict.client import PRODUCT
from strategos.components.predict.model import prepare
from strategos.components.predict.serving import rest
from strategos.components.predict.serving.answers import RequestError
from strategos.components.predict.serving.versions import (
    STABLE,
    UnknownVersionError,
    Versions,
    inode,
)
from strategos.components.push_targets import targets

IDLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves the versions of one push folder, with the last used one loaded.

    Args:
      listening: The socket, from `fork_listener.listen`.
      path: Path of the socket.
      target: The push folder.
      code: Names the code and the environment that must be the client's, too.
      idle: Seconds without a request until the process ends.
    """

    daemon_threads = True

    def __init__(
        self,
        listening: socket.socket,
        path: str,
        target: str,
        code: str,
        idle: float = IDLE_SECONDS,
    ):
        super().__init__("", _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        listening.listen(socket.SOMAXCONN)  # the peer of clients is this process now
        self.models = Versions(os.path.basename(target), {STABLE: targets.of(target)})
        self.code = code
        self._path, self._idle = path, idle
        self._mine = inode(path)
        self._lock = threading.Lock()
        self._active, self._last, self._retired = 0, time.monotonic(), False

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Rejects connections of other users."""
        return processes.peer(request)[1] == os.getuid()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Counts a connection until it is closed: meanwhile, the process stays."""
        with self._lock:
            self._active += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See `process_request`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._active -= 1

    def service_actions(self) -> None:
        """Ends the process if nothing needs it."""
        if self._active:
            return
        idle = time.monotonic() - self._last > self._idle
        if idle or self._retired or inode(self._path) != self._mine:
            self.end()

    def end(self) -> NoReturn:
        """Ends the process, and removes its socket."""
        self._remove()
        os._exit(0)

    def retire(self) -> None:
        """Takes no further connection, and ends after the last answer."""
        self._remove()
        self._retired = True

    def _remove(self) -> None:
        if inode(self._path) == self._mine:  # not the socket of a successor
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def keep(self) -> None:
        """Starts the time without a request anew."""
        self._last = time.monotonic()


class _Handler(rest.Handler):
    """One connection."""

    server: Server

    def check(self) -> None:
        """Rejects clients of another version of Strategos."""
        client = self.headers.get("User-Agent", "")
        if client.startswith(PRODUCT) and client != PRODUCT + self.server.code:
            self.server.retire()
            raise RequestError(HTTPStatus.CONFLICT, "another version of Strategos")

    def answered(self, *_: Any) -> None:
        """See `Server.keep`."""
        self.server.keep()


def main(_parent: str, descriptor: str, path: str, target: str, code: str) -> None:
    """Serves until nothing needs this process.

    Args:
      descriptor: File descriptor of the listening socket.
      path: As for `Server`; so are the others.
    """
    server = Server(socket.socket(fileno=int(descriptor)), path, target, code)
    signal.signal(signal.SIGTERM, lambda *_: server.end())
    threading.Thread(target=_load_newest, args=(server,), daemon=True).start()
    server.serve_forever(_LOOK_SECONDS)


def _load_newest(server: Server) -> None:
    """Loads the model before the first request."""
    prepare()
    with contextlib.suppress(UserError, UnknownVersionError):  # reported to a client
        server.models.get()


if __name__ == "__main__":
    main(*sys.argv[1:])
