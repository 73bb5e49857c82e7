"""Beam's own job server in Python, with workers that are started by a command.

    python beam_job_server.py FOLDER [HOST:PORT]

It listens on a port that it writes to `FOLDER/port`; or, for all that know this machine
as HOST, on PORT. Beam's lacks the environment
PROCESS, which those of Flink and Spark have; workers are forks of a warm process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability import local_job_service, local_job_service_main
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from strategos.components.shards import worker_boot

_WORKERS = "strategos.components.shards.worker_boot"


@worker_handlers.WorkerHandler.register_environment(
    common_urns.environments.PROCESS.urn, beam_runner_api_pb2.ProcessPayload
)
class ProcessWorkerHandler(worker_handlers.GrpcWorkerHandler):
    """Starts a worker as the hosts of Flink do."""

    def __init__(self, payload, *rest):
        super().__init__(*rest)
        self._payload = payload

    def start_worker(self):
        words = [f"--id={self.worker_id}"]
        words += [f"--provision_endpoint={self.control_address}"]
        self._process = subprocess.Popen(
            [self._payload.command, *words], env={**os.environ, **self._payload.env}
        )

    def stop_worker(self):
        self._process.terminate()
        self._process.wait()


def listen_as(host: str) -> None:
    """Accepts jobs from everywhere; their drivers connect to `host`."""
    servicer = local_job_service.LocalJobServicer
    servicer.get_bind_address = lambda self: "0.0.0.0"
    servicer.get_service_address = lambda self: host


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    folder = Path(sys.argv[1])
    socket = str(folder / "workers")
    warm = [sys.executable, "-m", _WORKERS, str(os.getpid()), socket]
    subprocess.Popen(warm, stdin=subprocess.DEVNULL)
    os.environ[worker_boot.VARIABLE] = socket
    options = ["--port_file", str(folder / "port")]
    for address in sys.argv[2:]:
        host, port = address.split(":")
        listen_as(host)
        options += ["--port", port]
    local_job_service_main.run(options)
