"""The client of `server`: finds the process, or starts it, and asks it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import http.client
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from strategos.components import exported, fork_listener, processes
from strategos.components.files import digests
from strategos.components.predict.model import ModelFailsError, Signature

PRODUCT = "strategos/"
"""Start of the `User-Agent` of a client, before its code."""

OUTPUTS = "Strategos-Outputs"
"""Header of a prediction: names of the outputs, as JSON."""

_SERVER = "strategos.components.predict.model_process"
_SOCKET, _LOCK, _LOG = "predict.sock", "predict.lock", "predict.log"
_ANSWER_SECONDS = 120.0  # TensorFlow's import takes some of them on a busy machine
_VARIABLES = ("CUDA", "KMP", "MKL", "OMP", "PYTHON", "TF", "XLA")


def allowed(environ: Mapping[str, str]) -> bool:
    """Whether a process may stay: not in CI, nor with `STRATEGOS_WARM=0`."""
    return not environ.get("CI") and environ.get("STRATEGOS_WARM") != "0"


def process_of(state: Path) -> int | None:
    """Id of the process that serves a root, if one does.

    The kernel names the process that listened last: the client that has started the
    process, until the process is ready. So the id must also be the noted one.

    Args:
      state: The root's state folder.
    """
    connection = _connected(state)
    if connection is None:
        return None
    with connection, contextlib.suppress(OSError):
        process = processes.peer(connection)[0]
        if (state / _LOCK).read_text() == str(process):
            return process
    return None


class ModelServer:
    """The process that keeps the model of a push folder loaded.

    Args:
      state: The root's state folder.
      target: The push folder.
      environ: Environment variables of the process.
    """

    def __init__(self, state: Path, target: str, environ: Mapping[str, str]):
        self._state, self._target, self._environ = state, target, environ
        self._code = _code(target, environ)

    def start(self) -> None:
        """Starts the process, unless it runs; it imports TensorFlow meanwhile."""
        connection = self._connection()
        if connection is not None:
            connection.close()

    def load(self, version: int, otherwise: Callable[[], Signature]) -> Signature:
        """The signature `serving_default` of a version.

        Args:
          version: Number of the version.
          otherwise: Loads the model in this process; called if the other process ends
            or does not answer.
        """
        local: list[Signature] = []

        def answer(examples: Sequence[bytes]) -> Mapping[str, list[Any]]:
            outputs = None if local else self._outputs(version, examples)
            if outputs is not None:
                return outputs
            if not local:
                local.append(otherwise())
            return local[0](examples)

        return answer

    def _outputs(
        self, version: int, examples: Sequence[bytes]
    ) -> dict[str, list[Any]] | None:
        """The outputs for some examples; None if the process does not answer."""
        name = quote(os.path.basename(self._target))
        path = f"/v1/models/{name}/versions/{version}:predict"
        instances = [{"b64": base64.b64encode(each).decode()} for each in examples]
        request = {"signature_name": exported.SERVE, "instances": instances}
        status, body, names = self._asked(path, json.dumps(request))
        if status == HTTPStatus.CONFLICT:  # it ends, and another takes its place
            status, body, names = self._asked(path, json.dumps(request))
        if status == HTTPStatus.BAD_REQUEST:
            raise ModelFailsError(body["error"])
        if status != HTTPStatus.OK:
            return None
        rows = body["predictions"]
        if len(names) == 1:
            return {names[0]: rows}
        return {name: [row[name] for row in rows] for name in names}

    def _asked(self, path: str, content: str) -> tuple[int, dict[str, Any], list[str]]:
        """Status, body and outputs of an answer; status 0 if there is none."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            connection = self._connection()
            if connection is not None:
                client = http.client.HTTPConnection("localhost")
                client.sock = connection
                with contextlib.closing(client):
                    agent = {"User-Agent": PRODUCT + self._code}
                    client.request("POST", path, content, agent)
                    answer = client.getresponse()
                    names = json.loads(answer.getheader(OUTPUTS, "[]"))
                    return answer.status, json.loads(answer.read()), names
        return 0, {}, []

    def _connection(self) -> socket.socket | None:
        """A connection to the process, which is started if it does not run.

        Returns:
          None if the state folder cannot be written, or the process is another user's.
        """
        try:
            return _connected(self._state) or self._started()
        except OSError:
            return None

    def _started(self) -> socket.socket | None:
        path = self._state / _SOCKET
        with open(self._state / _LOCK, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = _connected(self._state)  # another client was faster
            if connection is not None:
                return connection
            path.unlink(missing_ok=True)
            listening = fork_listener.listen(str(path), socket.SOCK_STREAM, 0o600)
            with listening, open(self._state / _LOG, "wb") as log:
                self._process = processes.start(
                    _SERVER,
                    [str(listening.fileno()), str(path), self._target, self._code],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[listening.fileno()],
                    env=self._environ,
                    cwd="/",
                )
            lock.truncate(0)
            lock.write(str(self._process.pid).encode())
        return _connected(self._state)


def end(process: int) -> None:
    """Ends a process of `process_of`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGTERM)


def _connected(state: Path) -> socket.socket | None:
    """A connection to the process of a state folder; None unless this user's runs."""
    connection = fork_listener.connect(str(state / _SOCKET), socket.SOCK_STREAM)
    if connection is not None and processes.peer(connection)[1] != os.getuid():
        connection.close()
        return None
    if connection is not None:
        connection.settimeout(_ANSWER_SECONDS)
    return connection


def _code(target: str, environ: Mapping[str, str]) -> str:
    """Hashes the dependencies of predicted values besides model and rows."""
    tensorflow = importlib.util.find_spec("tensorflow")
    installed = tensorflow and tensorflow.origin
    parts = [
        target,
        sys.executable,
        digests.of_sources(Path(exported.__file__).parent),
        f"{installed} {os.stat(installed).st_mtime_ns if installed else 0}",
        repr(sorted(os.sched_getaffinity(0))),
        *(f"{x}={environ[x]}" for x in sorted(environ) if x.startswith(_VARIABLES)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
