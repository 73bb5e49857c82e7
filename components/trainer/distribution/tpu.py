"""A TPU by name: whether it answers, and its strategy.

TensorFlow takes 13 to 34 s to find that access to a TPU is denied, and waits minutes
for an address that does not answer. So `probe` runs in a separate process, with a
time-out.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from strategos.components.errors import UserError, first_line
from strategos.components.processes import die_with_parent
from strategos.components.slow_imports import tf
from strategos.components.trainer.distribution.environment import TPU_PORT

LOCAL = "local"
"""The name of a TPU that is part of this machine."""

_MODULE = "strategos.components.trainer.distribution.tpu"
PROBE_SECONDS = 13.0
"""Time-out for the answer of a TPU, in seconds."""

_ANSWER_SECONDS = 4.0  # to connect, and again for the first frame
_CAUSE_LETTERS = 200
# gRPC uses HTTP/2: both sides begin with a SETTINGS frame (type 4).
_HTTP2_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2_SETTINGS
# Raw bytes both ways: TensorFlow's message classes need all of TensorFlow.
_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_TPU_DEVICE = re.compile(rb"\x12[\x03\x0a]TPU")  # DeviceAttributes.device_type
_CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0),)
_REMEDY = (
    "Check `trainer.distribution.tpu` (name, zone, project) and TPU_NAME, that the TPU "
    "is READY and that this machine may use it, or use another strategy."
)


def probe(name: str, zone: str | None = None, project: str | None = None) -> None:
    """Checks that a TPU can be reached; takes less than 15 s in any case.

    Args:
      name: Name, address (`grpc://HOST:PORT`, several with commas) or `local`.
      zone: Google Cloud zone; by default this machine's.
      project: Google Cloud project; by default this machine's.

    Raises:
      UserError: The TPU cannot be reached.
    """
    request = json.dumps({"name": name, "zone": zone, "project": project})
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ.pop("TF_CONFIG", None)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", _MODULE, str(os.getpid()), request],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            env=environ,
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(name, f"no answer within {PROBE_SECONDS:.0f} s") from None
    if done.returncode:
        lines = (done.stdout or done.stderr).strip().splitlines()
        raise _unreachable(name, lines[-1] if lines else f"exit code {done.returncode}")


def build(
    name: str, zone: str | None = None, project: str | None = None
) -> tf.distribute.TPUStrategy:
    """Connects to a TPU, initialises it, and returns its strategy.

    Args:
      name: Name, address (`grpc://HOST:PORT`, several with commas) or `local`.
      zone: Google Cloud zone; by default this machine's.
      project: Google Cloud project; by default this machine's.

    Raises:
      UserError: TensorFlow cannot connect to it or initialise it.
    """
    try:
        # Checked again: without a TPU, TensorFlow aborts the process further on.
        _look_for(name, zone, project)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            name, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except Exception as error:  # of many classes, e.g. of HTTP and sockets
        raise _unreachable(name, _cause(error)) from error


class _MissingTpuError(Exception):
    """No TPU answers at the given name or address."""


def _look_for(name: str, zone: str | None, project: str | None) -> None:
    """Raises an error of any class if the TPU cannot be used."""
    if name == LOCAL:
        if not any(Path("/dev").glob("accel[0-9]*")) and not any(
            Path("/dev/vfio").glob("[0-9]*")
        ):
            raise _MissingTpuError(
                "this machine has none (neither /dev/accel* nor /dev/vfio)"
            )
        return
    for host, port in _endpoints(name, zone, project):
        try:
            with socket.create_connection((host, port), _ANSWER_SECONDS) as connection:
                connection.sendall(_HTTP2_GREETING)
                greeting = connection.recv(len(_HTTP2_SETTINGS))
        except OSError as error:
            raise _MissingTpuError(f"{host}:{port}: {error}") from error
        if greeting[3:4] != _HTTP2_SETTINGS[3:4]:
            raise _MissingTpuError(f"{host}:{port}: the server there does not use gRPC")
        _check_devices(f"{host}:{port}")


def _check_devices(address: str) -> None:
    """Queries the server as TensorFlow does, and looks for a TPU in the answer."""
    import grpc

    with grpc.insecure_channel(address, _CHANNEL_OPTIONS) as channel:
        try:
            status = channel.unary_unary(_GET_STATUS)(b"", timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise _MissingTpuError(
                f"{address}: the server there uses gRPC, but is no TensorFlow "
                f"server that answers ({error.code().name})"
            ) from error
    if not _TPU_DEVICE.search(status):
        raise _MissingTpuError(
            f"{address}: the TensorFlow server there has no TPU device"
        )


def _endpoints(
    name: str, zone: str | None, project: str | None
) -> list[tuple[str, int]]:
    """Host and port of each of the TPU's workers."""
    if name.startswith("grpc://"):
        hosts = [part.removeprefix("grpc://") for part in name.split(",")]
    else:
        try:
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
                name, zone=zone, project=project
            )
        except OSError as error:  # it asks Google Cloud for zone and project
            raise _MissingTpuError(
                "zone and project are not given, and Google Cloud's metadata server, "
                f"which has them, does not answer ({error})"
            ) from error
        hosts = resolver.cluster_spec().job_tasks("worker")
    parts = (address.rpartition(":") for address in hosts)
    return [
        (host, int(port)) if colon else (port, TPU_PORT) for host, colon, port in parts
    ]


def _unreachable(name: str, cause: str) -> UserError:
    return UserError(f"The TPU {name!r} cannot be used: {cause}. {_REMEDY}")


def _cause(error: Exception) -> str:
    if isinstance(error, _MissingTpuError):
        return str(error)
    text = first_line(error).rstrip(".")
    kind = type(error).__name__
    return f"{kind}: {text}"[:_CAUSE_LETTERS] if text else kind


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    try:
        _look_for(**json.loads(sys.argv[2]))
    except Exception as error:
        print(_cause(error), flush=True)
        os._exit(1)
    os._exit(0)
