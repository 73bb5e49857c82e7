"""The process that keeps a pushed model loaded for `strategos predict`.

It answers TF Serving's REST requests on a socket of the root's state folder:

    GET  /v1/models/NAME[/versions/N]           its state
    POST /v1/models/NAME[/versions/N]:predict   {"signature_name": "serving_default",
                                                 "instances": [{"b64": "…"}, …]}

NAME is the name of the push folder. Without N, its newest version answers. An answer
to a prediction also has the names of the outputs, as `outputs`.

The process ends when it was idle for five minutes, when its socket is removed, e.g.
with the root, or when a client of another version of Strategos or TensorFlow asks.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from strategos.components import exported, processes
from strategos.components.errors import UserError
from strategos.components.predict.client import PRODUCT
from strategos.components.predict.model import Model, ModelFailsError, prepare
from strategos.components.push_targets import targets

IDLE_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_STALLED_SECONDS = 60.0  # a client that sends nothing
_PATH = re.compile(r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>\d+))?(:\w+)?")


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves the versions of one push folder, with the last used one loaded.

    Args:
      listening: The socket, from `fork_serving.listen`.
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
        self.name, self.code = os.path.basename(target), code
        self._target = targets.of(target)
        self._path, self._idle = path, idle
        self._mine = _inode(path)
        self._lock, self._loading = threading.Lock(), threading.Lock()
        self._loaded: tuple[Any, Model] | None = None
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
        if idle or self._retired or _inode(self._path) != self._mine:
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
        if _inode(self._path) == self._mine:  # not the socket of a successor
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def keep(self) -> None:
        """Starts the time without a request anew."""
        self._last = time.monotonic()

    def version(self, wanted: str | None) -> int | None:
        """The version with this number, by default the newest; None if missing."""
        versions = self._target.versions()
        if wanted is None:
            return versions[-1] if versions else None
        return int(wanted) if int(wanted) in versions else None

    def model(self, version: int) -> Model:
        """The model of a version; loads it unless it is the last used one.

        Raises:
          UserError: It does not load.
        """
        folder = Path(self._target.path(version))
        with self._loading:
            key = (folder, _inode(str(folder / exported.SAVED_MODEL)))
            if self._loaded is None or self._loaded[0] != key:
                self._loaded = None  # frees the memory first
                self._loaded = key, Model(folder)
            return self._loaded[1]


class _RequestError(Exception):
    """Names the status of an answer and its reason."""

    def __init__(self, status: HTTPStatus, reason: str):
        super().__init__(reason)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = _STALLED_SECONDS

    def do_GET(self) -> None:
        self._answer(self._state)

    def do_POST(self) -> None:
        self._answer(self._predictions)

    def log_message(self, *_: Any) -> None:
        """Logs no request."""

    def _answer(self, work: Callable[[], dict[str, Any]]) -> None:
        try:
            status, body = HTTPStatus.OK, work()
        except _RequestError as error:
            status, body = error.status, {"error": str(error)}
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.server.keep()

    def _version(self, verb: str) -> int:
        """The version that the path names."""
        client = self.headers.get("User-Agent", "")
        if client.startswith(PRODUCT) and client != PRODUCT + self.server.code:
            self.server.retire()
            raise _RequestError(HTTPStatus.CONFLICT, "another version of Strategos")
        match = _PATH.fullmatch(self.path)
        served = match and unquote(match["name"]) == self.server.name
        if match and served and (match[4] or "") == verb:
            version = self.server.version(match["version"])
            if version is not None:
                return version
        raise _RequestError(HTTPStatus.NOT_FOUND, f"{self.path} is not served")

    def _state(self) -> dict[str, Any]:
        status = {"error_code": "OK", "error_message": ""}
        state = {"version": str(self._version("")), "state": "AVAILABLE"}
        return {"model_version_status": [{**state, "status": status}]}

    def _predictions(self) -> dict[str, Any]:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        version = self._version(":predict")
        try:
            request = json.loads(content)
            rows = [_decoded(each) for each in request["instances"]]
            signature = request.get("signature_name", exported.SERVE)
            outputs = self.server.model(version)(rows, signature)
        except ModelFailsError as error:
            raise _RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        except UserError as error:
            raise _RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise _RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, reason) from error
        names = list(outputs)
        rows_of_answers: list[Any] = outputs[names[0]]
        if len(names) > 1:  # as TF Serving does
            columns = zip(*outputs.values(), strict=True)
            rows_of_answers = [dict(zip(names, row, strict=True)) for row in columns]
        return {"predictions": rows_of_answers, "outputs": names}


def _decoded(value: Any) -> Any:
    """Replaces `{"b64": …}` by its bytes, also in lists and dicts."""
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if isinstance(value, dict):
        if value.keys() == {"b64"}:
            return base64.b64decode(value["b64"])
        return {name: _decoded(each) for name, each in value.items()}
    return value


def _inode(path: str) -> tuple[int, ...]:
    """Identifies the file at a path; () if it is missing."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_mtime_ns
    return ()


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
    version = server.version(None)
    with contextlib.suppress(UserError):  # reported to the client that asks for it
        if version is not None:
            server.model(version)


if __name__ == "__main__":
    main(*sys.argv[1:])
