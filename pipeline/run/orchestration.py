"""Runs a pipeline from an effective config to an outcome, for `strategos run`.

lock the root → prepare data → plan → hand the plan to a runner → record the outcome
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components import events, node_ids
from strategos.components.data_files.listing import Listing
from strategos.components.errors import (
    ExitCode,
    InterruptedRunError,
    UserError,
)
from strategos.components.runtime_parameters import NOTHING
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.made_from import making
from strategos.pipeline.plan import caching, planning
from strategos.pipeline.plan.plan import Plan
from strategos.pipeline.plan.planning import RunFiles, RunOptions
from strategos.pipeline.plan.reuse import compiled
from strategos.pipeline.root import lease, lock, metadata, moved_root, names
from strategos.pipeline.root.state import file_hashes, state_folder
from strategos.pipeline.run import journal, preflight, preparation, retrain
from strategos.pipeline.run.interruption import Interruption
from strategos.pipeline.runners import NodeFailedError, light
from strategos.pipeline.runners.beam import BeamRunner
from strategos.pipeline.runners.executor_client import ExecutorClient
from strategos.pipeline.runners.local import LocalRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
      run_id: The run's id.
      outcome: As in `strategos runs`: blessed, finished, not blessed, stopped, failed
        or interrupted.
      exit_code: The exit code of `strategos run`.
      error: The error of the node that ended the run, if one did.
      failed_node: That node, or "".
    """

    run_id: str
    outcome: str
    exit_code: ExitCode = ExitCode.DONE
    error: UserError | None = None
    failed_node: str = ""


@dataclass(frozen=True)
class Turn:
    """The right to start a run now.

    Attributes:
      run_id: The id for the run.
      lease: The number of the last lease, for `lease.hold`.
      name_holder: Renames the holder of the root's lock, as from `lock.hold`.
    """

    run_id: str
    lease: int
    name_holder: Callable[..., None]


@contextlib.contextmanager
def turn(config: Config) -> Iterator[Turn]:
    """Holds the root's lock while the block runs, if the lease is free.

    Args:
      config: The effective settings.

    Raises:
      HeldError: Another run holds the lock or the lease.
      BadInputError: The root cannot be written, or ML Metadata cannot be used.
    """
    run_id = _new_id()
    with lock.hold(config.run.root, run_id=run_id) as name_holder:
        _settle_canary(config)
        number = lease.last(metadata.of(config), config.name)
        yield Turn(run_id, number, name_holder)


def another(turn: Turn, config: Config) -> Turn:
    """The right to start one more run inside of `turn`, once its run has ended.

    Args:
      turn: From `turn`, or from here.
      config: The effective settings.

    Raises:
      HeldError: A run on another machine has the lease.
    """
    run_id = _new_id()
    turn.name_holder(run_id=run_id)
    number = lease.last(metadata.of(config), config.name)
    return Turn(run_id, number, turn.name_holder)


def _new_id() -> str:
    return f"{datetime.datetime.now():%Y%m%d-%H%M%S.%f}"


def _settle_canary(config: Config) -> None:
    """Ends a promotion or an abort that was killed."""
    if not (config.pusher and config.pusher.canary):
        return
    from strategos.pipeline.run.versions import canary

    with contextlib.suppress(NoRunsError):
        canary.settle(config, Store.of(config))


def run(
    turn: Turn,
    config: Config,
    data: Listing,
    options: RunOptions,
    on_start: Callable[[Path], Any],
) -> Result:
    """Runs the pipeline of `config` once, inside of `turn`.

    Args:
      turn: From `turn`.
      config: The effective settings, already checked.
      data: The files that `data.examples` names.
      options: Command-line options of the run.
      on_start: Called with the event file before anything is reported; returns a
        context manager that is left when the run is over (the live view).

    Raises:
      BadInputError: The run is impossible as configured, or a run on another machine
        has started since `turn`; no node has run.
    """
    root, run_id, connection = config.run.root, turn.run_id, metadata.of(config)
    with Interruption() as interruption:
        earlier, files = planning.earlier_runs(root), RunFiles(root, run_id)
        with contextlib.ExitStack() as started:
            held = started.enter_context(
                lease.hold(connection, config.name, turn.lease, run_id)
            )
            memory, state = config.run.memory_bytes, state_folder(root)
            client = ExecutorClient(files.log, files.events, memory, state)
            started.enter_context(client)
            executed = planning.likely_executed(config, data, options)
            if executed != planning.Executed.NONE:  # its imports take seconds
                from_trainer = executed == planning.Executed.FROM_TRAINER
                client.start(trains_only=from_trainer)
            light.hide_heavy_imports()
            preparation.prepare_data(config, data)
            _open_metadata(config, earlier)
            events.open_sink(str(files.events))
            if taken_over := names.remember(config):
                events.emit("note", message=taken_over)
            _log_to(files.log)
            with on_start(files.events), started.pop_all():  # the view ends last
                plan = planning.plan(config, data, options, files, client)
                preflight.reject_containers(config, plan.ir)
                _keep_record(config, data, plan)
                with held.interrupting() if held else contextlib.nullcontext():
                    result = _run_plan(plan, config, client, interruption, held)
                if not result.exit_code:
                    compiled.keep_done(plan)
                events.emit("run_finished", outcome=result.outcome)
        events.open_sink(None)
    return result


def _keep_record(config: Config, data: Listing, plan: Plan) -> None:
    """Records the settings, code, data and stack of a run."""
    named = config.trainer.named_weights or NOTHING
    weights = caching.weights_by_content(named, file_hashes(config.run.root))
    making.keep(config, data, plan.run_id, weights, part="part" in plan.facts)


def _open_metadata(config: Config, earlier: set[str]) -> None:
    """Makes ML Metadata ready for a run, and closes earlier runs that were killed."""
    connection = metadata.of(config)
    store = metadata.initialise(connection)
    if connection.HasField("sqlite"):
        moved_root.follow(store, config.run.root)
    journal.close_abandoned(connection, config.name, earlier)


def _run_plan(
    plan: Plan,
    config: Config,
    client: ExecutorClient,
    interruption: Interruption,
    held: lease.Lease | None,
) -> Result:
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
    record = _open_journal(plan, config)
    beam = BeamRunner(config.run.memory_bytes, state_folder(config.run.root))
    runner = beam if runner_name == "beam" else LocalRunner(client)
    try:
        runner.run(plan)
        outcome = "blessed" if node_ids.EVALUATION_GATE in names else "finished"
        result = Result(plan.run_id, outcome)
    except NodeFailedError as failure:
        result = _failed(plan.run_id, failure, config)
    except KeyboardInterrupt:
        result = _interrupted(plan.run_id)
    # If ML Metadata failed, the node has already waited for it.
    wait = 0.0 if result.exit_code else plan.metadata_wait
    with interruption.held_off():
        if interruption.came and result.exit_code:
            result = _interrupted(plan.run_id, result.failed_node)
        if held and held.lost:
            result = Result(plan.run_id, "interrupted", ExitCode.FAILED, held.lost)
        record.close(result.outcome, result.failed_node, result.error, wait=wait)
    return result


def _open_journal(plan: Plan, config: Config) -> journal.Journal:
    facts = {"runner": config.run.runner, "config": str(config.path)}
    if config.gates:
        rejected = retrain.rejected_spans(config)
        facts["rejected"] = json.dumps(rejected)
    record = journal.Journal(plan)
    record.open(pipeline=config.name, **facts)
    return record


def _interrupted(run_id: str, failed_node: str = "") -> Result:
    error = InterruptedRunError("interrupted") if failed_node else None
    return Result(run_id, "interrupted", ExitCode.INTERRUPTED, error, failed_node)


def _failed(run_id: str, failure: NodeFailedError, config: Config) -> Result:
    error, outcome = failure.error, "failed"
    if error.exit_code == ExitCode.STOPPED:
        outcome = node_ids.GATES.get(failure.node, "stopped")
    if error.exit_code == ExitCode.INTERRUPTED:
        outcome = "interrupted"
    if error.key:
        error = config.located(error)
    return Result(run_id, outcome, error.exit_code, error, failure.node)


def _log_to(path: Path) -> None:
    """Redirects TFX's logs of this process from the terminal to the run's log."""
    from absl import logging as absl_logging

    logging.raiseExceptions = False  # no traceback if the log's disk is full
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s"))
    absl_logging.get_absl_logger().propagate = False
    absl_logging.get_absl_logger().handlers[:] = [handler]
