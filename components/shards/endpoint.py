"""Whether something listens at an address, asked before Beam waits for it for ever."""

from __future__ import annotations

import socket

_SECONDS = 5.0


def unreachable(address: str) -> str:
    """Why nothing answers at an address; "" if something does.

    Args:
      address: `HOST:PORT`.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)
    return ""
