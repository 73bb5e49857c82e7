"""Real servers that tests start on this machine: one interface, one way to skip.

with running(MariaDB(folder, port)) as server:
    connect(server.address)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Protocol, TypeVar

import pytest

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class MissingError(Exception):
    """This machine lacks what a server needs; the message says what and from where."""


class Server(Protocol):
    """A server with a folder of its own, of which nothing outlives `down`.

    Attributes:
      address: How clients name it; known once it is up.
    """

    address: str

    def up(self) -> None:
        """Starts it; returns once it answers.

        Raises:
          MissingError: It cannot run on this machine.
        """

    def down(self) -> None:
        """Ends it, whatever state it is in."""


S = TypeVar("S", bound=Server)


@contextlib.contextmanager
def running(server: S) -> Iterator[S]:
    """Runs a server during the block; skips the test where it cannot run."""
    try:
        with skipping():
            server.up()
        yield server
    finally:
        server.down()


@contextlib.contextmanager
def skipping() -> Iterator[None]:
    """Skips the test, by the name of what is missing."""
    try:
        yield
    except MissingError as missing:
        pytest.skip(str(missing))


def program(name: str, package: str) -> str:
    """The path of a program, also of one that only root finds.

    Args:
      name: Of the program.
      package: Debian's package with it.

    Raises:
      MissingError: It is not installed.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise MissingError(f"{name} is missing: apt-get install {package}")
    return found


def require_root(purpose: str) -> None:
    """Rejects users other than root.

    Args:
      purpose: What needs root, for the message.

    Raises:
      MissingError: The tests' user is not root.
    """
    if os.geteuid() != 0:
        raise MissingError(f"{purpose} needs root")


def wait_for(address: int | str, process: subprocess.Popen) -> None:
    """Waits until a process listens on a port of this machine, or on a Unix socket."""
    is_port = isinstance(address, int)
    family = socket.AF_INET if is_port else socket.AF_UNIX
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the server ended"
        with socket.socket(family) as probe:
            if probe.connect_ex(("127.0.0.1", address) if is_port else address) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {address}")


def end(process: subprocess.Popen | None) -> None:
    """Ends a process, if it was started."""
    if process is not None and process.poll() is None:
        process.terminate()
        process.wait(timeout=60)
