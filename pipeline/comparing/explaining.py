"""`strategos explain`: why a run, a verdict, a decision or a strategy is as it is."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from strategos.components.errors import ExitCode, UserError
from strategos.pipeline import commands

if TYPE_CHECKING:
    from strategos.components.data_files.listing import Listing
    from strategos.components.trainer.distribution.environment import ClusterSpec
    from strategos.components.trainer.distribution.strategy import Choice
    from strategos.pipeline.comparing.reasons import Reason
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.roots import History
    from strategos.pipeline.history.runs import Run
    from strategos.pipeline.made_from.record import Kept


def explain(arguments: argparse.Namespace) -> int:
    """`strategos explain blessing|distribution|retrain|run`."""
    known = {
        **{"blessing": _blessing, "distribution": _distribution},
        **{"retrain": _retrain, "run": _run},
    }
    return known[arguments.what](arguments)


def _blessing(arguments: argparse.Namespace) -> int:
    """Each bound of a run, and other objections to its model."""
    from strategos.pipeline.comparing import judged
    from strategos.pipeline.view import terminal
    from strategos.pipeline.view.report import headline, paragraph

    run, _ = _open_run(arguments)
    verdict = judged.blessing(run)
    if arguments.json:
        print(json.dumps(verdict, indent=2))
        return ExitCode.DONE
    console = terminal.console()
    console.print(headline(run, console))
    paragraph(
        console, "blessed" if verdict["blessed"] else "not blessed", verdict["reason"]
    )
    for objection in verdict["objections"]:
        paragraph(console, "objection", objection)
    for check in verdict["bounds"]:
        paragraph(console, check["state"], check["text"])
    return ExitCode.DONE


def _retrain(arguments: argparse.Namespace) -> int:
    """The last decisions of `strategos retrain`, and the outcomes of their runs."""
    from strategos.pipeline.history import decisions, roots
    from strategos.pipeline.view import terminal
    from strategos.pipeline.view.report import paragraph

    history = roots.open_history(arguments.pipeline, arguments.root)
    root = history.store.root  # none on Kubeflow: nothing here decides on its runs
    records = decisions.newest(root, history.pipeline, arguments.limit) if root else []
    listed = [{**x, "outcome": _outcome(history, x.get("run_id"))} for x in records]
    if arguments.json:
        print(json.dumps(listed, indent=2))
        return ExitCode.DONE
    console = terminal.console()
    if not listed:
        console.print("no decision yet: `strategos retrain` makes one")
    for each in listed:
        run = each.get("run_id")
        then = f"run {run}: {each['outcome'] or 'gone'}" if run else "no run"
        moment = terminal.moment(each["at"])
        paragraph(console, moment, f"{each['reason']} ({then})")
    return ExitCode.DONE


def _outcome(history: History, run_id: str | None) -> str | None:
    """How a run ended; None for no run, or one that is no longer known."""
    from strategos.pipeline.history import runs

    with contextlib.suppress(UserError):
        return runs.run(history.store, run_id).outcome if run_id else None
    return None


def _run(arguments: argparse.Namespace) -> int:
    """Why each node of a run ran, or was taken from the cache."""
    run, explained = _open_run(arguments)
    listed = explained()
    if arguments.json:
        plain = [dataclasses.asdict(each) for each in listed]
        print(json.dumps({"run": run.run_id, "nodes": plain}, indent=2))
    else:
        _show(run, listed)
    return ExitCode.DONE


def _open_run(
    arguments: argparse.Namespace,
) -> tuple[Run, Callable[[], tuple[Reason, ...]]]:
    """The run that a command names, and a function that explains its nodes."""
    from strategos.pipeline.comparing import on_kubeflow, reasons
    from strategos.pipeline.history import roots, runs
    from strategos.pipeline.history.store import NoRunsError

    words = arguments.run_or_pipeline
    run_id, pipeline = roots.run_and_pipeline(f"explain {arguments.what}", words)
    try:
        store = roots.open_history(pipeline, arguments.root).store
    except NoRunsError:
        last = None if run_id else 1
        cluster = on_kubeflow.opened(pipeline, arguments.root, last, run_id or "")
        if not cluster:
            raise
        run = runs.chosen(cluster.listed, run_id)
        return run, functools.partial(cluster.reasons, run)
    run, records = runs.run(store, run_id), _Records(str(store.root))
    return run, functools.partial(reasons.of_run, store, run, records)


class _Records(dict[str, "Kept | None"]):
    """The records of runs by run id, read at the first use."""

    def __init__(self, root: str):
        super().__init__()
        self._root = root

    def __missing__(self, run_id: str) -> Kept | None:
        from strategos.pipeline.made_from import record

        try:
            self[run_id] = record.read(self._root, run_id)
        except UserError:
            self[run_id] = None
        return self[run_id]


def _show(run: Run, listed: tuple[Reason, ...]) -> None:
    from strategos.pipeline.view import terminal
    from strategos.pipeline.view.report import headline, paragraph

    console = terminal.console()
    console.print(headline(run, console))
    width = max((len(each.node) for each in listed), default=0)
    for each in listed:
        since = f" (compared with run {each.compared})" if each.files else ""
        ran = "cached" if each.state == "cached" else "ran"
        paragraph(console, f"{each.node:{width}}", f"{ran}: {each.text}{since}")
    if not listed:
        console.print(
            "no step but Resolve has left a record: the others came from the cache of "
            "Kubeflow Pipelines, or the run ended before them"
        )


def _distribution(arguments: argparse.Namespace) -> int:
    """The strategy, its reason and a step's cost."""
    from strategos.pipeline.plan import explain
    from strategos.pipeline.run import preflight
    from strategos.pipeline.view import explain as explain_view

    config = commands.load(arguments).config
    data = config.data.listing()
    preflight.reject(config, data)
    explanation = explain.distribution(config, *_chosen(config, data))
    if arguments.json:
        print(json.dumps(explanation.to_json(), indent=2))
    else:
        explain_view.show(explanation)
    return ExitCode.DONE


def _chosen(config: Config, data: Listing) -> tuple[Choice, ClusterSpec]:
    """The strategy that trains here, and the cluster that the environment names.

    Raises a ConfigError as `preflight.reject_training` does.
    """
    from strategos.pipeline.checks import training
    from strategos.pipeline.run import preflight

    problems = list(training.step_problems(config, data))
    try:
        choice = training.choose(config)
    except UserError as error:
        problems.append(error)
    preflight.raise_all(config, problems)
    return choice
