"""Starts a Python worker of a Beam runner: the command of Beam's PROCESS environment.

Beam's own boot program stages and installs packages. Here a worker runs in the driver's
environment, at the same path, so nothing is staged. Usage, by the runner:
`strategos-worker --id=ID --provision_endpoint=HOST:PORT`.

A worker imports TensorFlow, Beam and components for five seconds of CPU time, and each
job starts one for each task slot. So the host of a cluster starts `python -m` this
module once, as a fork server on the socket that `VARIABLE` names. The command, which
the runner starts and ends, has a fork of it do the work; both end together.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from strategos.components import fork_listener, fork_server, processes, worker_process
from strategos.components.errors import UserError
from strategos.components.user_code import archive, modules
from strategos.components.user_code.workload_paths import WorkloadPaths

COMMAND = "strategos-worker"
"""Name of the installed command."""

VARIABLE = "STRATEGOS_WARM_WORKERS"
"""Name of the environment variable with the path of the fork server's socket."""

_PROVISION_SECONDS = 60
_IMPORTS = (
    "apache_beam.runners.worker.sdk_worker_main",
    "strategos.components.evaluator.executor",
    "strategos.components.example_gen.executor",
    "strategos.components.statistics_gen.executor",
    "strategos.components.transform.executor",
)


def main() -> None:
    """Runs a worker until the runner ends it."""
    _end_with_parent()
    fork = fork_server.call(
        __name__,
        work.__name__,
        sys.argv[1:],
        path=sys.path,
        numbers={0: 0, 1: 1, 2: 2},
        at=os.environ.get(VARIABLE),
    )
    if fork is None:
        work(*sys.argv[1:])
    else:
        fork.wait()
    worker_process.leave(0)


def work(*arguments: str) -> None:
    """Runs a worker in this process.

    Args:
      *arguments: Arguments of the command.
    """
    parser = argparse.ArgumentParser(COMMAND)
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    options, _ = parser.parse_known_args(arguments)
    for name, value in worker_process.ONE_THREAD.items():
        os.environ.setdefault(name, value)
    os.environ.update(worker_process.NO_GPU)
    with _modules():
        with processes.without_collections():
            from apache_beam.runners.worker import sdk_worker_main
        os.environ.update(_described(options.id, options.provision_endpoint))
        sdk_worker_main.main(sys.argv[:1])


@contextlib.contextmanager
def _modules() -> Iterator[None]:
    """Makes the user's modules importable, from the driver's folder or its archive.

    A worker that ends while it starts can stop a job for ever. So a worker that cannot
    download the modules goes on, and the code that imports them fails.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(archive.of_step("kubeflow"))
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
        folder = WorkloadPaths.from_environment().folder
        if folder:
            modules.activate(folder)
        yield


def _end_with_parent() -> None:
    """Kills this process when its parent process ends, for whatever reason.

    The kernel's signal for that (`processes.die_with_parent`) watches a thread, and a
    JVM starts processes in threads that end.
    """
    with contextlib.suppress(OSError):  # the parent has ended, or no permission
        parent = os.pidfd_open(os.getppid())
        processes.when_ended(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _described(worker: str, endpoint: str) -> dict[str, str]:
    """Environment variables of Beam's worker, from the runner's provision service."""
    import grpc
    from apache_beam.portability.api import (
        beam_provision_api_pb2,
        beam_provision_api_pb2_grpc,
    )
    from google.protobuf import json_format, text_format

    with grpc.insecure_channel(endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        info: Any = service.GetProvisionInfo(
            beam_provision_api_pb2.GetProvisionInfoRequest(),
            metadata=[("worker_id", worker)],
            timeout=_PROVISION_SECONDS,
        ).info
    logs, control = info.logging_endpoint, info.control_endpoint
    return {
        "WORKER_ID": worker,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(logs),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


if __name__ == "__main__":
    requests = fork_listener.listen(sys.argv[2])  # the first ones wait for the imports
    fork_listener.serve(requests, int(sys.argv[1]), _IMPORTS)
