"""Beam pipelines by the runner of an engine."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import apache_beam as beam

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.shards import worker_boot
from strategos.components.shards.beam_engine import ENGINES, BeamEngine
from strategos.components.shards.engine import Engine, unreachable
from strategos.components.shards.flink import shared
from strategos.components.shards.flink.connection import Connection
from strategos.components.shards.flink.watch import JobLimits
from strategos.components.shards.job import BeamJob
from strategos.components.user_code import archive, workload_paths

# A runner is named because Beam's default one tries to download another (Beam ≥ 2.68).
# Without a requirements file, each pipeline would build an sdist of TFX (1.2 s).
# Type checks are off because TFX's pipelines are known to be well typed.
_IN_PROCESS = (
    "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
    "--requirements_file=/dev/null",
    "--no_pipeline_type_check",
)

# Requests to the job server include the streams of a job's states and messages, so
# this limits the time of a job.
_JOB_SECONDS = 30 * 24 * 3600
# A worker process outlives its stage, so the next stage need not import TensorFlow
# again. Flink restarts a job after a longer time, with new workers.
_KEEP_WORKER_MILLIS = 3000

# Variables of this process that workers get. Others see them, in a user interface of
# the runner: there are no credentials among them, nor addresses of object stores, which
# may have other names where workers are.
_PASSED = (
    "ARROW_DEFAULT_MEMORY_POOL",
    "GRPC_VERBOSITY",
    "KERAS_BACKEND",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_USE_LEGACY_KERAS",
    archive.VARIABLE,
    workload_paths.VARIABLE,
)


def make_pipeline(engine: Engine) -> beam.Pipeline:
    """Makes a Beam pipeline that runs on `engine` at the end of its `with` block.

    Raises:
      UserError: The command that starts workers is not installed, the runner of the
        engine did not start, or no job server answers.
    """
    return ENGINES[engine.runner].make_pipeline(engine)


class Direct(BeamEngine):
    """Beam's in-process runner."""

    def make_pipeline(self, engine: Engine) -> beam.Pipeline:
        """See `BeamEngine`."""
        return beam.Pipeline(argv=list(_IN_PROCESS))


class JobServer(BeamEngine):
    """A Beam job server that someone else has started: `spark` and `portable`."""

    def make_pipeline(self, engine: Engine) -> beam.Pipeline:
        """See `BeamEngine`; checks that the job server answers."""
        _check_reachable(engine.job_endpoint or "")
        connection = Connection(engine.job_endpoint, engine.master)
        return _portable_job(engine, connection, engine.workers)


class Flink(BeamEngine):
    """A Flink cluster, which the run starts unless one is named."""

    def make_pipeline(self, engine: Engine) -> beam.Pipeline:
        """See `BeamEngine`."""
        connection, workers = shared.connection(engine), engine.threads
        # Else the slots of a TaskManager would share one process, and Python's lock.
        spread = f"--sdk_worker_parallelism={min(workers, connection.slots)}"
        return _portable_job(engine, connection, workers, spread)


class Dataflow(BeamEngine):
    """Google Cloud Dataflow."""

    def make_pipeline(self, engine: Engine) -> beam.Pipeline:
        """See `BeamEngine`."""
        return BeamJob(_job_name(), Connection(), _limits(engine), _dataflow(engine))


def _portable_job(
    engine: Engine, connection: Connection, workers: int | None, *spread: str
) -> BeamJob:
    """A job for a job server that starts `strategos-worker` processes."""
    endpoint = f"--job_endpoint={connection.job_endpoint}"
    shards = [f"--parallelism={workers}"] if workers else []
    arguments = [*_portable(os.environ), endpoint, *spread, *shards]
    return BeamJob(_job_name(), connection, _limits(engine), arguments)


def _limits(engine: Engine) -> JobLimits:
    return JobLimits(engine.timeout, engine.stall_timeout)


def _check_reachable(endpoint: str) -> None:
    """Rejects an address at which nobody listens: Beam would wait for a month.

    A run on this machine checks the address before its first node; a compiled pipeline
    cannot.
    """
    problem = unreachable(endpoint)
    if problem:
        raise UserError(
            f"no job server listens there ({problem})",
            key="run.engine.options.job_endpoint",
            received=endpoint,
            remedy="Start it, or correct the address.",
        )


def _portable(environ: Mapping[str, str]) -> list[str]:
    """Options for a job server that starts `strategos-worker` processes.

    Workers of Beam's type LOOPBACK or EXTERNAL would listen on all interfaces, for
    anyone.
    """
    variables = {name: environ[name] for name in _PASSED if name in environ}
    worker = {"command": _worker_command(), "env": variables}
    return [
        "--runner=PortableRunner",
        f"--job_server_timeout={_JOB_SECONDS}",
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps(worker)}",
        f"--environment_cache_millis={_KEEP_WORKER_MILLIS}",
        "--default_sdk_harness_log_level=WARN",
        "--experiments=disable_logging_submission_environment",  # runs `pip freeze`
        "--no_pipeline_type_check",
    ]


def _dataflow(engine: Engine) -> list[str]:
    """Options for Dataflow: workers run the image with nothing added to it."""
    most = [f"--max_num_workers={engine.workers}"] if engine.workers else []
    return [
        "--runner=DataflowRunner",
        f"--project={engine.project}",
        f"--region={engine.region}",
        f"--temp_location={engine.temp_location}",
        f"--sdk_container_image={engine.image}",
        "--sdk_location=container",
        "--experiments=disable_logging_submission_environment",  # runs `pip freeze`
        "--no_pipeline_type_check",
        *most,
    ]


def _worker_command() -> str:
    command = Path(sys.executable).with_name(worker_boot.COMMAND)
    if not command.exists():
        raise UserError(
            f"{command} does not exist, and Beam's runner starts workers with it",
            remedy="Install Strategos again in this environment (`make setup`).",
        )
    return str(command)


def _job_name() -> str:
    """A name that no other job has: it finds the job in the runner."""
    node = (events.current_node() or "pipeline").lower()
    return f"strategos-{node}-{uuid.uuid4().hex[:12]}"
