"""`strategos retrain`: decides, records the decision, and runs if a run is due."""

from __future__ import annotations

import argparse
import json
from typing import Any

from strategos.components import node_ids
from strategos.components.data_files.listing import Listing, select_spans
from strategos.components.data_files.spans import Span
from strategos.components.errors import ExitCode, UserError, required
from strategos.pipeline import api, commands
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history import decisions, runs
from strategos.pipeline.history.store import Store
from strategos.pipeline.plan import caching
from strategos.pipeline.plan.retraining import RetrainingDecision
from strategos.pipeline.root import lock
from strategos.pipeline.run import comparison, orchestration, preflight, preparation
from strategos.pipeline.run import retrain as retraining
from strategos.pipeline.run.orchestration import Turn
from strategos.pipeline.view.live import LiveView

_FRESH = ("trainer.compare_fresh=false", "trainer.fresh_every=1")


def retrain(arguments: argparse.Namespace) -> int:
    """Runs the pipeline once, if a run is due or was asked for.

    Args:
      arguments: The parsed command line.

    Returns:
      The exit code of the run; DONE without one.
    """
    config = commands.load(arguments).config
    data = config.data.listing()
    if arguments.spans:
        return _backfill(arguments, config, data)
    if not _waits_for_spans(arguments, data):
        preflight.reject(config, data)
    if arguments.dry_run:
        _, decision = _decide(config, data)
        _show(decision, arguments)
        return ExitCode.DONE
    try:
        with orchestration.turn(config) as turn:
            result = _decide_and_run(arguments, config, data, turn)
    except lock.HeldError as error:
        if not arguments.if_due:
            raise
        print(f"Not due: {error}")
        return ExitCode.DONE
    return commands.report(config, result) if result else ExitCode.DONE


def _decide_and_run(
    arguments: argparse.Namespace, config: Config, data: Listing, turn: Turn
) -> orchestration.Result | None:
    """Decides, and runs the pipeline on the chosen spans; None if no run started."""
    preparation.prepare_data(config, data)
    data, decision = _decide(config, data)
    starts = decision.due or not arguments.if_due
    recorded = retraining.to_json(decision) | {
        "run_id": turn.run_id if starts else None,
        "target": caching.target_key(config),
    }
    decisions.record(config.run.root, config.name, recorded)
    _show(decision, arguments)
    if not starts:
        return None
    if decision.anew:  # with the cache, no node would train or push anything
        config = commands.load(arguments, "run.cache=false").config
    preflight.reject_training(config, data)
    compares = config.trainer.compare_fresh and decision.trigger != "first"
    if compares and not decision.anew:
        return _run_better(arguments, turn, config, data, decision)
    options = _asked(arguments, decision)
    return api.run_in_turn(
        turn, config, data, LiveView, reason=decision.reason, **options
    )


def _asked(
    arguments: argparse.Namespace, decision: RetrainingDecision
) -> dict[str, Any]:
    """The options of all runs that follow a decision."""
    return {
        "new": decision.new_numbers,
        "without_baseline": arguments.without_baseline,
        "take_over": arguments.take_over,
    }


def _run_better(
    arguments: argparse.Namespace,
    turn: Turn,
    config: Config,
    data: Listing,
    decision: RetrainingDecision,
) -> orchestration.Result:
    """Runs the better of two candidates: warm start, and from scratch.

    Each is trained and evaluated by its own run; the last run starts from the outputs
    of the better one. If the command is interrupted, the next attempt uses their
    results from the cache.
    """
    cached = "run.cache=true"
    options, reason = _asked(arguments, decision), decision.reason
    fresh = commands.load(arguments, cached, *_FRESH).config
    configs = {comparison.WARM: config, comparison.FRESH: fresh}

    def train(settings: Config) -> orchestration.Result:
        nonlocal turn
        result = api.run_in_turn(
            turn, settings, data, LiveView, to_node=node_ids.EVALUATOR, **options
        )
        turn = orchestration.another(turn, config)
        return result

    done = comparison.trials(
        configs, train, lambda run: runs.run(Store.of(config), run)
    )
    if isinstance(done, orchestration.Result):
        return done
    if done:
        metric = required(config.evaluator).metrics[0]
        told = comparison.described(done, metric)
        print(told, flush=True)
        reason = f"{reason} {told}"
        warm = commands.load(arguments, cached).config
        config = {**configs, comparison.WARM: warm}[comparison.better(done, metric)]
    return api.run_in_turn(turn, config, data, LiveView, reason=reason, **options)


def _decide(config: Config, data: Listing) -> tuple[Listing, RetrainingDecision]:
    """The data that a run would read, and the decision on it."""
    data, left_out = retraining.accepted(config, data)
    return data, retraining.decide(config, data, left_out)


def _backfill(arguments: argparse.Namespace, config: Config, data: Listing) -> int:
    """Runs once for each span of `--spans`, as if later spans had not arrived."""
    preflight.reject(config, data)
    outcome: int = ExitCode.DONE
    for span in _asked_for(arguments, data):
        reason = f"Backfill: as of span {span.number}."
        print(reason, flush=True)
        if arguments.dry_run:
            continue
        past = data.as_of(span.number)
        preflight.reject_training(config, past)
        with orchestration.turn(config) as turn:
            result = api.run_in_turn(
                turn,
                config,
                past,
                LiveView,
                reason=reason,
                without_baseline=arguments.without_baseline,
                take_over=arguments.take_over,
            )
        code = commands.report(config, result)
        if code not in (ExitCode.DONE, ExitCode.STOPPED):
            return code
        outcome = max(outcome, code)
    return outcome


def _asked_for(arguments: argparse.Namespace, data: Listing) -> list[Span]:
    try:
        return select_spans(data.found, arguments.spans)
    except UserError as error:
        raise error.but(key="--spans") from error


def _waits_for_spans(arguments: argparse.Namespace, data: Listing) -> bool:
    """Whether spans exist, all incomplete, and `--if-due` or `--dry-run` is set."""
    if data.is_empty or not (arguments.if_due or arguments.dry_run):
        return False
    return not data.any_complete


def _show(decision: RetrainingDecision, arguments: argparse.Namespace) -> None:
    text = decision.reason
    if arguments.json:
        text = json.dumps(retraining.to_json(decision))
    print(text, flush=True)
