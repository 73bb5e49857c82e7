"""TCP ports for the tasks of a gang."""

from __future__ import annotations

import errno
import os
import socket


class Ports:
    """Free ports of this machine, reserved for as long as this object holds them.

    The ports stay bound here, without listening; SO_REUSEPORT lets TensorFlow's
    servers, started by forks of this process, bind them too.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, count: int) -> list[int]:
        """Releases the reserved ports, and reserves `count` new ones.

        Sets TF_GRPC_REUSE_PORT in this process's environment.

        Args:
          count: Number of ports.
        """
        os.environ["TF_GRPC_REUSE_PORT"] = "1"
        self.give_back()
        for _ in range(count):
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(("127.0.0.1", 0))
            self._held.append(held)
        return [held.getsockname()[1] for held in self._held]

    def give_back(self) -> None:
        """Releases the reserved ports."""
        while self._held:
            self._held.pop().close()


def is_taken(port: int) -> bool:
    """Whether another process listens on a port.

    Args:
      port: TCP port number.

    Raises:
      OSError: The system allows no server on that port for another reason.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return True
    return False
