"""Executor processes that need no imports: forks of a process that has done them.

While `served` is entered, the executor process of each run that starts here is such a
fork. It is as new as a process of its own: the server imports, and executes nothing, so
no run leaves modules, graphs or memory to the next one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from strategos.components import fork_listener, fork_server, processes
from strategos.components.container import warm_start
from strategos.components.files import temporary
from strategos.pipeline.runners import environment

_VARIABLE = "STRATEGOS_EXECUTOR_SERVER"  # path of the server's socket
_EXECUTOR = "strategos.pipeline.runners.executor_process"
_COMPONENTS = (
    *("baseline_model", "evaluator", "example_gen", "example_validator", "gate"),
    *("import_schema_gen", "infra_validator", "pusher", "schema_gen"),
    *("statistics_gen", "trainer", "transform"),
)
_IMPORTS = (
    *warm_start.IMPORTS,
    *(f"strategos.components.{name}.component" for name in _COMPONENTS),
    "strategos.pipeline.plan.graph",
)


@contextlib.contextmanager
def served() -> Iterator[subprocess.Popen[bytes]]:
    """Runs that start in the block fork their executor processes; yields the server.

    The server imports in the background; the first run waits for it. If it is killed,
    runs start new processes.
    """
    with temporary.folder() as folder:
        address = os.path.join(folder, "executors")
        with fork_listener.listen(address) as requests:
            server = processes.start(
                __name__,
                [str(requests.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[requests.fileno()],
                env=environment.of_executors(),
            )
        os.environ[_VARIABLE] = address
        try:
            yield server
        finally:
            del os.environ[_VARIABLE]
            processes.end_session(server)


def start(
    channel: socket.socket,
    events: Path,
    log: IO[bytes],
    env: dict[str, str],
    imports: Sequence[str],
) -> subprocess.Popen[bytes] | fork_server.Child:
    """Starts an executor process: a fork if there is a server.

    Args:
      channel: The process's end of the socket for requests.
      events: The run's event file.
      log: The file for the output of executors.
      env: All environment variables.
      imports: What the process imports before its first request.
    """
    arguments = [str(events), *imports]
    forked, address = None, os.environ.get(_VARIABLE)
    if address:
        with open(os.devnull, "rb") as nothing:
            forked = fork_server.call(
                _EXECUTOR,
                "serve",
                arguments,
                env=env,
                numbers={0: nothing.fileno(), 1: log.fileno(), 2: log.fileno()},
                pipe=channel,
                at=address,
            )
    return forked or processes.start(
        _EXECUTOR,
        [str(channel.fileno()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[channel.fileno()],
        env=env,
    )


if __name__ == "__main__":
    parent, descriptor = map(int, sys.argv[1:])
    fork_listener.serve(socket.socket(fileno=descriptor), parent, _IMPORTS)
