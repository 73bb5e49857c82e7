"""Runs the program of a container component on this machine, by Docker or podman.

The container sees the artifacts of its node at the same paths as this process: inputs
are mounted read-only, outputs writable. TFX's `DockerExecutorOperator` mounts nothing,
and leaves the container behind, running if the run is interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Any

from strategos.components import processes
from strategos.components.errors import (
    BadInputError,
    ExitCode,
    GateStoppedError,
    UserError,
)

Artifacts = dict[str, list[Any]]

_LABEL = "strategos.node"
_LOOK_SECONDS = 0.1
_SHOWN = 5  # last lines of the output of a container that failed


def connect(environ: Mapping[str, str] = os.environ) -> Any:
    """A client of Docker, or of podman, which answers the same requests.

    Args:
      environ: `DOCKER_HOST` names the server, e.g. `unix:///run/podman/podman.sock`;
        by default, the sockets are tried that Docker and podman make.

    Returns:
      A `docker.DockerClient`; close it.

    Raises:
      BadInputError: None answers.
    """
    import docker

    addresses = list(_addresses(environ))
    for address in addresses:
        client = None
        try:
            # TLS, if it is set, is Docker's own affair.
            client = docker.from_env(environment={**environ, "DOCKER_HOST": address})
            client.ping()
            return client
        except docker.errors.DockerException:
            if client is not None:
                client.close()
    raise BadInputError(
        f"neither Docker nor podman answers at {', '.join(addresses)}",
        remedy="Install and start Docker; or install podman, and start its service by "
        "`systemctl start podman.socket` or `podman system service --time 0`. "
        "DOCKER_HOST names a server elsewhere.",
    )


def run(
    program: Mapping[str, Any],
    inputs: Artifacts,
    outputs: Artifacts,
    parameters: Mapping[str, Any],
    *,
    node: str,
    is_gate: bool,
) -> None:
    """Runs a container until its program ends; the log gets the program's output.

    Args:
      program: TFX's `ContainerExecutableSpec`, as JSON.
      inputs: Artifacts by argument, for placeholders in the command.
      outputs: Artifacts by argument, for placeholders in the command.
      parameters: Values by argument.
      node: The node's folder. Containers left by a killed run of this node are removed.
      is_gate: Whether exit code 3 stops the run.

    Raises:
      GateStoppedError: A gate's program ended with exit code 3.
      UserError: The program failed, or could not be started.
      SystemExit: This process received SIGTERM; the container is removed.
    """
    import docker

    signals = processes.Signals()
    signals.install()
    try:
        with contextlib.closing(connect()) as client:
            left = {"label": f"{_LABEL}={node}"}
            for old in client.containers.list(all=True, filters=left):
                old.remove(force=True)
            _pull(client, program["image"])
            command = _command(program, inputs, outputs, parameters)
            container = client.containers.create(
                program["image"],
                labels={_LABEL: node},
                volumes={**_mounts(inputs, "ro"), **_mounts(outputs, "rw")},
                user=_user(client),
                entrypoint=command[:1] or None,
                command=command[1:],
            )
            try:
                code, output = _follow(container, signals)
            finally:
                container.remove(force=True)
    except docker.errors.DockerException as error:
        reason = getattr(error, "explanation", None) or str(error)
        raise UserError(f"image {program['image']}: {reason}") from error
    finally:
        signals.restore()
    if code == ExitCode.STOPPED and is_gate:
        raise GateStoppedError(output or "a container stopped the run")
    if code:
        ended = f"its container ended with exit code {code}"
        raise UserError(f"{ended}: {output}" if output else f"{ended}, without output")


def _addresses(environ: Mapping[str, str]) -> Iterable[str]:
    if address := environ.get("DOCKER_HOST"):
        yield address
        return
    yield "unix:///var/run/docker.sock"
    yield "unix:///run/podman/podman.sock"
    if own := environ.get("XDG_RUNTIME_DIR"):
        yield f"unix://{own}/docker.sock"
        yield f"unix://{own}/podman/podman.sock"


def _pull(client: Any, image: str) -> None:
    """Pulls an image that this machine lacks."""
    import docker

    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        logging.info("pulling the image %s", image)
        client.images.pull(image)


def _command(
    program: Mapping[str, Any],
    inputs: Artifacts,
    outputs: Artifacts,
    parameters: Mapping[str, Any],
) -> list[str]:
    """The words of the command, with placeholders replaced."""
    from google.protobuf import json_format
    from tfx.dsl.compiler import placeholder_utils
    from tfx.orchestration.portable.data_types import ExecutionInfo
    from tfx.proto.orchestration import executable_spec_pb2

    spec = json_format.ParseDict(
        dict(program), executable_spec_pb2.ContainerExecutableSpec()
    )
    context = placeholder_utils.ResolutionContext(
        exec_info=ExecutionInfo(
            input_dict=inputs, output_dict=outputs, exec_properties=dict(parameters)
        )
    )
    resolve = placeholder_utils.resolve_placeholder_expression
    return [str(resolve(word, context)) for word in (*spec.commands, *spec.args)]


def _mounts(artifacts: Artifacts, mode: str) -> dict[str, dict[str, str]]:
    """Docker's `volumes`: each artifact on this machine, at its own path."""
    paths = (artifact.uri for listed in artifacts.values() for artifact in listed)
    return {x: {"bind": x, "mode": mode} for x in paths if os.path.exists(x)}


def _user(client: Any) -> str:
    """The user, so that outputs are this process's: root stands for it if rootless."""
    options = client.info().get("SecurityOptions") or []
    is_rootless = any("name=rootless" in each for each in options)
    return "0:0" if is_rootless else f"{os.geteuid()}:{os.getegid()}"


def _follow(container: Any, signals: processes.Signals) -> tuple[int, str]:
    """Runs a container to its end; its exit code, and the end of its output.

    Raises:
      SystemExit: This process received SIGTERM first.
    """
    last: deque[str] = deque(maxlen=_SHOWN)

    def watch() -> int:
        for line in _lines(container.logs(stream=True)):
            logging.info("container: %s", line)
            last.append(line)
        return container.wait()["StatusCode"]

    container.start()
    code: futures.Future[int] = futures.Future()
    threading.Thread(target=_settle, args=(code, watch), daemon=True).start()
    while not futures.wait([code], _LOOK_SECONDS).done:
        if signals.stop_requested:
            raise SystemExit(ExitCode.PREEMPTED)
    return code.result(), "\n".join(last)


def _lines(chunks: Iterable[bytes]) -> Iterable[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
    if rest:
        yield rest.decode(errors="replace")


def _settle(future: futures.Future[int], function: Callable[[], int]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # else the main thread would wait for ever
        future.set_exception(error)
