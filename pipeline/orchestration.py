"""One run from an effective config to an outcome: what `strategos run` does.

    prepare data → lock the root → choose spans → compile (or take the IR from disk)
      → substitute runtime parameters → hand the plan to a runner → record the outcome

Exit codes: 0 finished and blessed; 1 failed; 2 bad input; 3 not blessed or stopped by a
gate; 130 interrupted.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import events
from strategos.components.baseline_model import NOTHING
from strategos.components.errors import BadInputError
from strategos.components.example_gen import spans as span_files
from strategos.components.filesystems import is_remote
from strategos.pipeline import graph, journal, lock, metadata, production
from strategos.pipeline.runners import NodeFailedError, Plan, light
from strategos.pipeline.runners.beam import BeamRunner
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.local import LocalRunner
from strategos.pipeline.state import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ml_metadata.proto import metadata_store_pb2

    from strategos.pipeline.config import Config

_GATES = {"AnomalyGate": "stopped", "EvaluationGate": "not blessed"}
_GATES["InfraValidator"] = "not blessed"


@dataclass(frozen=True)
class Options:
    """How to run, as opposed to what: `strategos run`'s own flags.

    Attributes:
      from_node: Start here; what lies before is taken from the last run.
      to_node: Stop after this one.
    """

    from_node: str | None = None
    to_node: str | None = None


@dataclass(frozen=True)
class Result:
    """How a run ended, in the words that `strategos runs` uses."""

    run_id: str
    outcome: str
    exit_code: int
    cause: str = ""
    failed_node: str = ""


@dataclass
class _Files:
    """The run's own folder, in the state of its root."""

    root: str
    run_id: str
    folder: Path = field(init=False)

    def __post_init__(self):
        self.folder = state_folder(self.root) / "runs" / self.run_id
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events.touch()
        self.log.touch()

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"


def run(
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
    options: Options,
    on_start: Callable[[Path], Any],
) -> Result:
    """Runs the pipeline of `config` once.

    Args:
      config: The effective settings, already checked.
      connection: ML Metadata's.
      options: Flags of this run.
      on_start: Called with the event file before anything is reported; returns a
        context manager that is left when the run is over (the live view).

    Raises:
      BadInputError: What was asked for cannot be run; nothing has been.
    """
    run_id = datetime.datetime.now().strftime("%Y%m%d-%H%M%S.%f")
    root = config.run.root
    with lock.hold(root, run_id=run_id), _terminate_as_interrupt():
        light.hide_heavy_imports()
        prepare_data(config)
        metadata.initialise(connection)
        files = _Files(root, run_id)
        events.open_sink(str(files.events))
        _log_to(files.log)
        with on_start(files.events), ExecutorClient(files.log, files.events) as client:
            plan = _plan(config, connection, options, files, client)
            result = _run_plan(plan, config, client)
            events.emit("run_finished", outcome=result.outcome)
        events.open_sink(None)
    return result


def prepare_data(config: Config) -> None:
    """Lets the workload make its data, where it names how and they are missing.

    Raises:
      BadInputError: The function failed, or made nothing that matches the pattern.
    """
    if not config.data.prepare or _has_data(config.data.examples):
        return
    module, _, function = config.data.prepare.partition(":")
    code = (
        "import sys; from strategos.components import user_code; "
        "user_code.function(*sys.argv[1:4])(sys.argv[1])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run([*command, str(config.folder), module, function or "prepare"])
    if done.returncode:
        raise BadInputError(
            f"{config.path}: data.prepare: {config.data.prepare} failed (see above), "
            f"so there are no data at {config.data.examples}."
        )
    span_files.find_spans(config.data.examples)


def _has_data(pattern: str) -> bool:
    try:
        return bool(span_files.find_spans(pattern))
    except span_files.NoFilesError:
        return False


def parameters(config: Config) -> dict[str, Any]:
    """A value for each of `graph.PARAMETERS`, data spans resolved to what is there.

    Raises:
      BadInputError: No data match the pattern or the choice of spans.
    """
    found = span_files.find_spans(config.data.examples)
    chosen = span_files.select_spans(found, str(config.data.spans))
    values = {
        **config.runtime_parameters(),
        "spans": json.dumps([[span.number, span.version] for span in chosen]),
        "data_fingerprint": span_files.fingerprint(chosen),
        "baseline": NOTHING,
        "candidate": NOTHING,
    }
    return {name: values[name] for name in graph.PARAMETERS}


def _plan(
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
    options: Options,
    files: _Files,
    client: ExecutorClient,
) -> Plan:
    values = parameters(config)
    ir = _compiled(config, values, client)
    _substitute(ir, {**values, "pipeline-run-id": files.run_id}, config, connection)
    lost = _lost_what_it_pushed(config, connection)
    for node in ir.nodes:
        caching = node.pipeline_node.execution_options.caching_options
        again = lost and node.pipeline_node.node_info.id == "Pusher"
        caching.enable_cache = config.run.cache and not again
    plan = Plan(files.run_id, ir, connection, files.events, files.log)
    _mark(plan, options)
    return plan


def _lost_what_it_pushed(
    config: Config, connection: metadata_store_pb2.ConnectionConfig
) -> bool:
    """Whether Pusher's cached work is void because its versions are gone.

    Under a local root its artifact is a link to the version, and the cache sees it
    dangle; a remote root has no links.
    """
    import ml_metadata

    if not config.pusher or not is_remote(config.run.root):
        return False
    if is_remote(config.pusher.to):
        return False
    store = ml_metadata.MetadataStore(connection)
    return production.newest(store, config.pusher.to) is None


def _compiled(config: Config, values: dict[str, Any], client: ExecutorClient) -> Any:
    """The IR, from disk where nothing it depends on has changed."""
    from tfx.proto.orchestration import pipeline_pb2

    fingerprints = graph.Fingerprints.of(config)
    key = _ir_key(config, fingerprints)
    path = state_folder(config.run.root) / "ir" / f"{key}.pb"
    if not path.is_file():
        events.emit("note", message="compiling the pipeline (settings or code are new)")
        path.parent.mkdir(parents=True, exist_ok=True)
        client.compile(config, fingerprints, values, path)
    return pipeline_pb2.Pipeline.FromString(path.read_bytes())


def _ir_key(config: Config, fingerprints: graph.Fingerprints) -> str:
    settings = config.model_dump(
        mode="json",
        exclude={
            "data": {"spans", "prepare"},
            "trainer": {
                "batch_size",
                "epochs",
                "seed",
                "hyperparameters",
                "distribution",
            },
            "run": {"metadata", "runner", "cache"},
            "schedule": True,
            "kubeflow": True,
            "vertex": True,
        },
    )
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for part in (str(config.folder), repr(fingerprints), graph.stack_versions()):
        digest.update(part.encode() + b"\0")
    here = Path(__file__).parents[1]
    sources = [Path(graph.__file__), *here.glob("components/*/component.py")]
    for source in sorted(sources):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _substitute(
    ir: Any,
    values: dict[str, Any],
    config: Config,
    connection: metadata_store_pb2.ConnectionConfig,
) -> None:
    """Puts the runtime parameters into the IR, the baseline's path last."""
    import ml_metadata
    from tfx.orchestration.portable import runtime_parameter_utils
    from tfx.proto.orchestration import pipeline_pb2

    if config.pusher:
        trial = pipeline_pb2.Pipeline()
        trial.CopyFrom(ir)
        runtime_parameter_utils.substitute_runtime_parameter(trial, values)
        key = production.candidate_key(trial)
        store = ml_metadata.MetadataStore(connection)
        serving = production.newest(store, config.pusher.to)
        compare = production.baseline(serving, key, fresh=not config.run.cache)
        values = {**values, "candidate": key, "baseline": compare}
    runtime_parameter_utils.substitute_runtime_parameter(ir, values)


def _mark(plan: Plan, options: Options) -> None:
    if not (options.from_node or options.to_node):
        return
    from tfx.orchestration.portable import partial_run_utils

    names = [node.pipeline_node.node_info.id for node in plan.ir.nodes]
    for flag, name in (("--from", options.from_node), ("--to", options.to_node)):
        if name and name not in names:
            raise BadInputError(
                f"{flag} {name}: no such node. This pipeline has {', '.join(names)}."
            )
    partial_run_utils.mark_pipeline(
        plan.ir,
        from_nodes=[options.from_node] if options.from_node else None,
        to_nodes=[options.to_node] if options.to_node else None,
    )


def _run_plan(plan: Plan, config: Config, client: ExecutorClient) -> Result:
    names = [
        node.pipeline_node.node_info.id
        for node in plan.ir.nodes
        if not node.pipeline_node.execution_options.HasField("skip")
    ]
    runner_name = config.run.runner
    events.emit(
        "run_started",
        run_id=plan.run_id,
        pipeline=config.name,
        nodes=names,
        runner=runner_name,
        log=str(plan.log),
    )
    record = journal.Journal(plan)
    record.open(pipeline=config.name, runner=runner_name, config=str(config.path))
    runner = BeamRunner() if runner_name == "beam" else LocalRunner(client)
    try:
        runner.run(plan)
        outcome = "blessed" if "EvaluationGate" in names else "finished"
        result = Result(plan.run_id, outcome, 0)
    except NodeFailedError as failure:
        result = _failed(plan.run_id, failure)
    except KeyboardInterrupt:
        result = Result(plan.run_id, "interrupted", 130, "interrupted")
    record.close(result.outcome, cause=result.cause, failed_node=result.failed_node)
    return result


def _failed(run_id: str, failure: NodeFailedError) -> Result:
    outcome = "failed"
    if failure.exit_code == 3:
        outcome = _GATES.get(failure.node, "stopped")
    if failure.exit_code == 130:
        outcome = "interrupted"
    code = failure.exit_code
    return Result(run_id, outcome, code, failure.cause, failure.node)


def _log_to(path: Path) -> None:
    """Sends what TFX logs in this process to the run's log, not to the terminal."""
    from absl import logging as absl_logging

    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s"))
    absl_logging.get_absl_logger().propagate = False
    absl_logging.get_absl_logger().handlers[:] = [handler]


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: children ended, outcome recorded."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
