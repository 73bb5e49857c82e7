"""Copies of the folder where a gang meets, for hosts that share no folder.

The chief's host has the folder itself and serves it; each other host keeps a copy, to
which its worker writes as to a shared folder (`rendezvous.py`). A few times a second a
host sends the files that its worker has changed, and receives the others' files. A
file has one writer, who replaces it as a whole, so that copies need no locks. Without a
connection, the heartbeats in both folders stand still, as in a shared folder that is
away.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn

from strategos.components.errors import required
from strategos.components.files import commit
from strategos.components.trainer.distribution.environment import ClusterSpec

_EXCHANGE_SECONDS = 0.3
_TIMEOUT_SECONDS = 5.0
_LARGEST_BYTES = 1 << 26
_REPORT = re.compile(r"[0-9a-f]{12}/[a-z]+-[0-9]+\.(json|beat)")


def port_of(cluster: ClusterSpec) -> int:
    """The chief's port for copies: the port of its task plus 1."""
    return cluster.address_of(required(cluster.chief))[1] + 1


def serve(folder: Path, cluster: ClusterSpec, token: str) -> Server:
    """Serves the folder on the chief's host, from a thread of this process.

    Args:
      folder: The folder where the gang meets.
      cluster: All tasks.
      token: Secret of the gang.

    Raises:
      OSError: The port is taken.
    """
    server = Server(folder, port_of(cluster), token)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def keep_copy(folder: Path, cluster: ClusterSpec, token: str) -> None:
    """Keeps a copy of the chief's folder on this host, by a thread of this process.

    Args:
      folder: Folder of the copy.
      cluster: All tasks, and the task of this host.
      token: Secret of the gang.
    """
    copy = Copy(folder, cluster, token)
    threading.Thread(target=copy.keep, daemon=True).start()


class Server(http.server.ThreadingHTTPServer):
    """Serves the folder where a gang meets; only to hosts that know the token.

    Args:
      folder: The folder.
      port: Port on all interfaces.
      token: Secret of the gang.
    """

    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, folder: Path, port: int, token: str):
        self._folder, self.token = folder, token
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        """Binds the port for IPv4 as well as for IPv6."""
        with contextlib.suppress(AttributeError, OSError):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def exchange(
        self, changed: Mapping[str, str], known: Mapping[str, str]
    ) -> dict[str, str]:
        """Takes a host's changed files, and returns files that it does not know.

        Args:
          changed: Content of the host's own files by name.
          known: Digest of each file that the host has, by name.
        """
        for name, text in changed.items():
            path = self._folder / name
            # A run that is over has no folder any more.
            if _REPORT.fullmatch(name) and path.parent.is_dir():
                commit.write(path, text)
        files = _read(self._folder, "*.json", "*/*.json")
        return {n: text for n, text in files.items() if known.get(n) != _digest(text)}

    def handle_error(self, request: object, client_address: object) -> None:
        """A host that went away is no error here."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT_SECONDS

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        header = self.headers.get("Authorization", "")
        if not hmac.compare_digest(header.encode(), self.server.token.encode()):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        if size > _LARGEST_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            request = json.loads(self.rfile.read(size))
            changed, known = dict(request["changed"]), dict(request["known"])
        except (ValueError, TypeError, KeyError):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        answer = json.dumps(self.server.exchange(changed, known)).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


class Copy:
    """A copy of the chief's folder on another host.

    Args:
      folder: Folder of the copy.
      cluster: All tasks, and the task of this host.
      token: Secret of the gang.
    """

    def __init__(self, folder: Path, cluster: ClusterSpec, token: str):
        self._folder, self._token = folder, token
        self._host = cluster.address_of(required(cluster.chief))[0].strip("[]")
        self._port = port_of(cluster)
        self._address = ""
        self._task = required(cluster.task).name
        self._sent: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def keep(self) -> NoReturn:
        """Exchanges files with the chief's host for as long as this process lives."""
        while True:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                self.exchange()
            time.sleep(_EXCHANGE_SECONDS)

    def exchange(self) -> None:
        """Sends this host's new files, and writes the new files of the others.

        Raises:
          OSError: The chief's host cannot be reached.
          ValueError: The chief's host does not accept this host.
        """
        own = _read(self._folder, f"*/{self._task}.json", f"*/{self._task}.beat")
        changed = {n: text for n, text in own.items() if self._sent.get(n) != text}
        for name, text in self._ask({"changed": changed, "known": self._known}).items():
            self._known[name] = _digest(text)
            if Path(name).stem != self._task:
                path = self._folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                commit.write(path, text)
        self._sent |= own

    def _ask(self, question: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """The answer of the chief's host; its name is resolved once.

        A cluster's DNS may be away for longer than a gang waits for heartbeats.
        """
        host, timeout = self._address or self._host, _TIMEOUT_SECONDS
        self._address = ""
        connection = http.client.HTTPConnection(host, self._port, timeout=timeout)
        with contextlib.closing(connection):
            connection.connect()
            address = connection.sock.getpeername()[0]
            body, headers = json.dumps(question), {"Authorization": self._token}
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise ValueError(f"the chief's host answers {answer.status}")
            received = json.loads(answer.read())
        self._address = address
        return received


def _read(folder: Path, *patterns: str) -> dict[str, str]:
    """Content of files by name; files that disappear meanwhile are left out."""
    contents = {}
    for path in (each for pattern in patterns for each in folder.glob(pattern)):
        with contextlib.suppress(OSError):
            contents[str(path.relative_to(folder))] = path.read_text()
    return contents


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
