"""Who may see the pages: names of this server, the token, and headers of answers."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response

from strategos.components.services import listening

POLICY = (
    "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'self'; "
    "script-src 'self'; connect-src 'self'; form-action 'self'"
)
"""The Content-Security-Policy of all pages; reports have their own."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Guard:
    """Lets requests in by their Host header and token.

    A page of another site cannot read ours through a name that it lets point to this
    machine: the request has the other name in its Host header.

    Args:
      host: The address on which the server listens.
      port: The port, which names the cookie: browsers share cookies between ports.
      token: The token; None for a server without one, on loopback.
    """

    def __init__(self, host: str, port: int, token: str | None):
        self._names = _names(host)
        self._any_address = not listening.is_loopback(host)
        self._token = None if token is None else _digest(token)
        self._cookie = f"strategos-ui-{port}"

    def knows(self, request: Request) -> bool:
        """Whether the request names this server."""
        try:
            name = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self._names:
            return True
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name)
            return self._any_address
        return False

    def admits(self, request: Request) -> bool:
        """Whether the request has the token, if there is one."""
        if self._token is None:
            return True
        return _same(request.cookies.get(self._cookie, ""), self._token)

    def is_token(self, text: str) -> bool:
        """Whether a text is the token."""
        return self._token is not None and _same(_digest(text), self._token)

    def remember(self, response: Response) -> None:
        """Makes the browser show the token from now on, until it ends."""
        response.set_cookie(
            self._cookie, self._token or "", httponly=True, samesite="Strict"
        )


def protect(headers: Headers, policy: str = POLICY) -> None:
    """Adds the headers that all answers have.

    Args:
      headers: Of the answer.
      policy: Its Content-Security-Policy.
    """
    headers["Content-Security-Policy"] = policy
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers.setdefault("Cache-Control", "no-store")


def _names(host: str) -> Collection[str]:
    names = {*_LOOPBACK, host.lower()}
    if not listening.is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return names


def _digest(token: str) -> str:
    """The value of the cookie: a hash, not the token itself."""
    return hashlib.sha256(f"strategos ui {token}".encode()).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
