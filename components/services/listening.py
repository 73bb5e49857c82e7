"""Ports of this machine, for commands that serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

from strategos.components.errors import BadInputError

_BACKLOG = 64


def on(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
      host: Name or IP address of this machine.
      port: The port, 0 for any free one.

    Raises:
      BadInputError: The port is taken, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        is_taken = getattr(error, "errno", None) == errno.EADDRINUSE
        why = "another program listens there" if is_taken else str(error)
        raise problem("--port", host, port, why) from error
    return made


def problem(key: str, host: str, port: int, why: str) -> BadInputError:
    """The error of a port that cannot be listened on.

    Args:
      key: The option that names the port.
      host: As for `on`.
      port: As for `on`.
      why: The error.
    """
    return BadInputError(
        why,
        key=key,
        received=f"{port} on {host}",
        remedy=f"Take any free port with {key} 0, or stop the other program.",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def in_url(host: str) -> str:
    """An address as a URL has it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
