"""The front of cloud_storage.py, a process of its own.

    python cloud_storage_front.py SERVER CERTIFICATE

Arrow holds Python's lock while it waits for some answers, so that a thread of a test's
process could not give them. SERVER is the program fake-gcs-server, which this process
starts and ends; CERTIFICATE has the key, too. Prints its own port. Each line that it
reads sets attributes of `State`, in JSON; it answers with the number of connections and
requests that were missed.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time

_NAMES = ("www.googleapis.com", "storage.googleapis.com", "oauth2.googleapis.com")
_TOKENS = ("/token", "/oauth2/v3/token", "/oauth2/v4/token")
_TOKEN = "a-token-of-this-test"
_GRANT = {
    **{"access_token": _TOKEN, "expires_in": 3600, "token_type": "Bearer"},
    "id_token": "any",  # Arrow's client ends the process without it
}
# TensorFlow asks for it before it renames, from 2.16 on; the server does not know it.
_LAYOUT = {"kind": "storage#storageLayout", "hierarchicalNamespace": {"enabled": False}}
# Headers of one connection; Go rejects TensorFlow's `Transfer-Encoding: identity`.
_OWN = {"connection", "transfer-encoding", "expect", "content-length"}


class State:
    """What the front does with requests.

    Attributes:
      rejects: HTTP status that answers each request for objects; 0 for none.
      away: Whether connections break and no new ones are accepted.
      missed: Number of connections and requests that came while it was away.
    """

    def __init__(self, port: int, certificate: str):
        self.rejects, self.away, self.missed = 0, False, 0
        self.port, self.connections = port, set()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate)

    def set(self, name: str, value: object) -> None:
        """Sets an attribute; breaks all connections if it is away now."""
        setattr(self, name, value)
        for connection in list(self.connections) if self.away else ():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Front(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, state: State, *arguments):
        self._state, self._backend = state, None
        super().__init__(*arguments)

    def handle(self):
        with contextlib.suppress(OSError):
            super().handle()

    def finish(self):
        self._state.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()
            self.connection.close()

    def do_CONNECT(self):
        self._state.missed += self._state.away
        if self._state.away or self.path.partition(":")[0] not in _NAMES:
            self.close_connection = True
            return
        self.send_response(200)
        self.end_headers()
        self.connection = self._state.tls.wrap_socket(self.connection, server_side=True)
        self._state.connections.add(self.connection)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)
        self.close_connection = False

    def _answer(self):
        if self._state.away:
            self._state.missed += 1
            self.close_connection = True
            return
        body = self._body()
        if self.command == "POST" and self.path in _TOKENS:
            self._send(200, json.dumps(_GRANT).encode())
            return
        known = self.headers.get("Authorization") == f"Bearer {_TOKEN}"
        status = self._state.rejects or (0 if known else 401)
        if status:
            error = {"code": status, "message": f"rejected: {status}", "errors": []}
            self._send(status, json.dumps({"error": error}).encode())
            return
        if self.path.endswith("/storageLayout"):
            self._send(200, json.dumps(_LAYOUT).encode())
            return
        self._forward(body)

    do_DELETE = do_GET = do_HEAD = do_PATCH = do_POST = do_PUT = _answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _forward(self, body: bytes) -> None:
        kept = [(k, v) for k, v in self.headers.items() if k.lower() not in _OWN]
        headers = dict(kept) | {"X-Forwarded-Proto": "https"}
        if self._backend is None:
            self._backend = http.client.HTTPConnection("127.0.0.1", self._state.port)
        self._backend.request(self.command, self.path, body, headers)
        got = self._backend.getresponse()
        kept = [(k, v) for k, v in got.getheaders() if k.lower() not in _OWN]
        self._send(got.status, got.read(), kept, got.getheader("Content-Length"))

    def _send(self, status: int, content: bytes, headers=(), length=None) -> None:
        self.send_response_only(status)
        for key, value in headers:
            self.send_header(key, value)
        if status not in (204, 304):
            self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def _server(program: str):
    """Runs fake-gcs-server inside the block, with a bucket; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ("-scheme", "http", "-host", "127.0.0.1", "-backend", "memory")
    process = subprocess.Popen(
        [program, *options, "-port", str(port)], stdout=subprocess.DEVNULL
    )
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        bucket = json.dumps({"name": "bucket"})
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/storage/v1/b?project=project", bucket, kind)
        assert connection.getresponse().status == 200
        yield port
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Answers until its input ends, with the process that started it."""
    program, certificate = sys.argv[1:]
    with _server(program) as port:
        state = State(port, certificate)
        handler = functools.partial(_Front, state)
        front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=front.serve_forever, daemon=True).start()
        print(front.server_port, flush=True)
        for line in sys.stdin:
            for name, value in json.loads(line).items():
                state.set(name, value)
            print(state.missed, flush=True)


if __name__ == "__main__":
    main()
