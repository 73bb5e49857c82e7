"""Loads, checks, runs and reads pipelines: the functions of `import strategos`.

The commands of `strategos` call the same functions and print the results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components.errors import ExitCode, UserError
from strategos.components.events import NewEvents
from strategos.components.pusher import APPROVAL
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.report import notebook
from strategos.pipeline.report.document import Section
from strategos.pipeline.runners import apart
from strategos.pipeline.runners.apart import RunRequest

if TYPE_CHECKING:
    from strategos.components.data_files.listing import Listing
    from strategos.pipeline.config.loading import Loaded
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.runs import Run
    from strategos.pipeline.run import orchestration

Sets = Mapping[str, Any] | Sequence[str]
"""By key, `{"trainer.epochs": 3}`, or as for `--set`, `["trainer.epochs=3"]`."""

_LOOK_SECONDS = 0.125  # between two reads of the event file


@dataclasses.dataclass(frozen=True)
class Validation(notebook.Shown):
    """The result of `validate`; a notebook shows it as a table.

    Attributes:
      problems: Every problem that was found, in reading order, each with its `place`
        (file and line), `key`, `received`, `expected` and `remedy`; empty if none.
      loaded: The settings; None if they are invalid.
    """

    problems: tuple[UserError, ...]
    loaded: Loaded | None

    def _sections(self) -> list[Section]:
        from strategos.pipeline.report.sections import problems

        return [problems.problems(self.problems)]


@dataclasses.dataclass(frozen=True)
class RunEvent:
    """A report of a running pipeline.

    Attributes:
      kind: `run_started`, `node_started`, `rows`, `progress`, `epoch`, `warning`,
        `note`, `node_finished`, `node_failed`, `run_finished` or another one: ignore
        kinds that you do not know.
      time: Unix seconds.
      node: The node's id; None for the run as a whole.
      details: The other values, e.g. `rows`, `message`, `state`, `seconds`.
    """

    kind: str
    time: float
    node: str | None
    details: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RunResult(notebook.Shown):
    """The result of a run that was started; a notebook shows it as tables and charts.

    Attributes:
      exit_code: The exit code of `strategos run`: DONE, FAILED, STOPPED (not blessed,
        stopped by a gate, or the model awaits approval) or INTERRUPTED.
      run: The run's record: outcome, verdict, metrics, pushed version, nodes, …
      error: The error of the node that ended the run; None if no node failed.
    """

    exit_code: ExitCode
    run: Run
    error: UserError | None = None

    def _sections(self) -> Sequence[Section]:
        return _of_run(self.run)


class _History(tuple["Run", ...], notebook.Shown):
    """Runs that a notebook shows as a table, and one with details as tables."""

    __slots__ = ()

    def _sections(self) -> Sequence[Section]:
        from strategos.pipeline.report.sections import runs

        only = self[0] if len(self) == 1 else None
        return _of_run(only) if only and only.nodes else [runs.runs(self)]


def load(
    pipeline: str | Path = MAIN_FILE,
    *,
    overlays: Sequence[str | Path] = (),
    sets: Sets = (),
) -> Loaded:
    """Loads the effective settings of a pipeline, each with its origin.

    Args:
      pipeline: The pipeline's YAML.
      overlays: YAML files; a later one overrides an earlier one and the pipeline.
      sets: Settings that override the files, e.g. `{"trainer.epochs": 3}`, or in the
        syntax of `--set`, `["trainer.epochs=3"]`.

    Raises:
      ConfigError: The settings are invalid; `problems` has every problem.
    """
    from strategos.pipeline.config import loading
    from strategos.pipeline.root import names

    return names.named(loading.load(pipeline, overlays, _as_texts(sets)))


def validate(
    pipeline: str | Path = MAIN_FILE,
    *,
    overlays: Sequence[str | Path] = (),
    sets: Sets = (),
    deep: bool = False,
) -> Validation:
    """Checks settings, modules, data and this machine, without TensorFlow.

    Even if some settings are invalid, files named by the other settings are checked.

    Args:
      pipeline: The pipeline's YAML.
      overlays: As in `load`.
      sets: As in `load`.
      deep: Whether to import the components of `nodes`, and TFX with them, where no
        run has checked their types yet.
    """
    from strategos.pipeline.checks import training
    from strategos.pipeline.config import loading
    from strategos.pipeline.config.problems import Repaired
    from strategos.pipeline.run import preflight

    problems: list[UserError] = []
    loaded = None
    try:
        loaded = load(pipeline, overlays=overlays, sets=sets)
        repaired = Repaired(loaded.config, frozenset())
    except loading.ConfigError as error:
        problems, repaired = error.problems, error.repaired
    if repaired:
        config, data = repaired.config, repaired.config.data.listing()
        more = preflight.file_problems(config, data)
        if not (more or problems):  # training reads the data, and tries this machine
            more = list(training.check(config, data, probe=False))
            if deep:  # reads specifications by their cache keys
                from strategos.pipeline.checks import nodes

                more += nodes.check_deep(config)
        problems += [each for each in more if not repaired.concerns(each.key)]
    return Validation(tuple(loading.in_reading_order(problems, str(pipeline))), loaded)


def run(
    pipeline: str | Path = MAIN_FILE,
    *,
    overlays: Sequence[str | Path] = (),
    sets: Sets = (),
    runner: str | None = None,
    cache: bool = True,
    from_node: str | None = None,
    to_node: str | None = None,
    from_scratch: bool = False,
    without_baseline: bool = False,
    take_over: str | None = None,
    on_event: Callable[[RunEvent], object] | None = None,
) -> RunResult:
    """Runs a pipeline in its own process, and waits for its end.

    Never exits this process, and leaves its signal handlers, standard streams and
    environment as they are; so it also works in a notebook, in a thread and inside a
    running event loop, which it blocks: `await asyncio.to_thread(strategos.run, …)`
    does not. The run ends with this process. Output of user code goes to `sys.stderr`.

    An exception in this thread, such as Ctrl-C or one that `on_event` raises, ends the
    run first: it is recorded as interrupted, and a later run resumes its training.

    Args:
      pipeline: The pipeline's YAML.
      overlays: As in `load`.
      sets: As in `load`.
      runner: `local` or `beam`; by default `run.runner`.
      cache: Whether to reuse outputs of earlier runs, if `run.cache` does.
      from_node: The first node to run, e.g. `Trainer`; the nodes before it keep their
        outputs of the last run.
      to_node: The last node to run.
      from_scratch: Whether to ignore the checkpoints of an interrupted training.
      without_baseline: Whether to judge the model without the model in production.
      take_over: Another root, e.g. `build1:/data/root`; this run may replace its
        pushed models.
      on_event: Called in this thread with each event of the run.

    Returns:
      The run's record and exit code, also if a node failed or a gate stopped the run.

    Raises:
      BadInputError: The run was rejected before its first node; a ConfigError has
        every problem.
      UserError: The run could not start, e.g. because another run holds the root.
    """
    request = RunRequest(
        pipeline=os.fspath(pipeline),
        overlays=[os.fspath(each) for each in overlays],
        sets=_as_texts(sets),
        runner=runner,
        cache=cache,
        from_node=from_node,
        to_node=to_node,
        from_scratch=from_scratch,
        without_baseline=without_baseline,
        take_over=take_over,
    )
    return apart.run(request, functools.partial(_follow, on_event))


def run_here(
    request: RunRequest, on_start: Callable[[Path], Any]
) -> tuple[Config, orchestration.Result]:
    """Runs a pipeline in this process, which should do little else: see `run`.

    Receives SIGINT and SIGTERM, and hides TensorFlow and Beam from later imports.

    Args:
      request: The arguments of `run`.
      on_start: As in `orchestration.run`.

    Returns:
      The effective settings, and how the run ended.
    """
    from strategos.pipeline.plan import partial
    from strategos.pipeline.run import orchestration, preflight

    overrides = [f"run.runner={request.runner}"] if request.runner else []
    overrides += [] if request.cache else ["run.cache=false"]
    sets = [*request.sets, *overrides]
    config = load(request.pipeline, overlays=request.overlays, sets=sets).config
    data = config.data.listing()
    bounds_of_run = {"--from": request.from_node, "--to": request.to_node}
    problems = preflight.file_problems(config, data)
    problems += partial.problems(config, bounds_of_run)
    preflight.raise_all(config, problems)
    preflight.reject_training(config, data)
    with orchestration.turn(config) as turn:
        return config, run_in_turn(turn, config, data, on_start, **request.options)


def run_in_turn(
    turn: orchestration.Turn,
    config: Config,
    data: Listing,
    on_start: Callable[[Path], Any],
    **options: Any,
) -> orchestration.Result:
    """Runs a pipeline in this process inside of `orchestration.turn`.

    Args:
      turn: From `orchestration.turn`.
      config: The effective settings, already checked.
      data: The files that `data.examples` names.
      on_start: As in `orchestration.run`.
      **options: Fields of `planning.RunOptions`.
    """
    from strategos.pipeline.history import roots
    from strategos.pipeline.plan import planning
    from strategos.pipeline.run import orchestration

    run_options = planning.RunOptions(**options)
    result = orchestration.run(turn, config, data, run_options, on_start)
    roots.remember(config.run.root)
    return result


def conclude(
    config: Config,
    result: orchestration.Result,
    show: Callable[[Run], object] = lambda _: None,
) -> RunResult:
    """Reads the record of a run that has ended, notifies, and writes its report.

    Args:
      config: The effective settings.
      result: How the run ended.
      show: Called with the record before the notification.
    """
    from strategos.pipeline.history import runs
    from strategos.pipeline.history.store import Store
    from strategos.pipeline.run import notification

    store = None
    try:
        store = Store.of(config)
        done = runs.run(store, result.run_id)
        show(done)
    except UserError as error:  # ML Metadata is gone, which may have ended the run
        print(f"strategos: the run is {result.outcome}; {error}", file=sys.stderr)
        cause = str(result.error or error)
        done = runs.Run(
            result.run_id, config.name, 0.0, None, result.outcome, cause=cause
        )
    if config.notify:
        notification.notify(config, done)
    if store and config.run.report:
        from strategos.pipeline.report import writing

        writing.write_after(store, done.run_id)
    waits = result.exit_code == ExitCode.DONE and done.pushed and done.slot == APPROVAL
    code = ExitCode.STOPPED if waits else result.exit_code
    return RunResult(code, done, result.error)


def history(
    pipeline: str | Path | None = None,
    *,
    root: str | None = None,
    limit: int | None = None,
    details: bool = False,
) -> tuple[Run, ...]:
    """Reads past runs from ML Metadata, newest first.

    A notebook shows them as a table with the course of the first metric, and a single
    run with details as `run` shows its result.

    Args:
      pipeline: The pipeline's YAML; by default all pipelines of `root`.
      root: A pipeline root. Without `pipeline` and `root`: the root of
        `pipeline.yaml` in the current folder, else the last root used.
      limit: Largest number of runs; by default all.
      details: Whether each run has its nodes, summary, gates, types and warnings,
        which takes a tenth of a second for each.

    Raises:
      UserError: Nothing has run under the root yet, or ML Metadata cannot be read.
    """
    from strategos.pipeline.history import roots, runs

    yaml = None if pipeline is None else os.fspath(pipeline)
    opened = roots.open_history(yaml, root, announce=lambda _: None)
    listed = runs.history(opened.store, opened.pipeline, limit)
    if details:
        listed = [runs.run(opened.store, each.run_id) for each in listed]
    return _History(listed)


def _of_run(run: Run) -> Sequence[Section]:
    """The report's sections of a run without its artifacts, below the run's id."""
    from strategos.pipeline.report import content
    from strategos.pipeline.report.record import Record

    shown = content.document(Record(run, (), None))
    first, *others = shown.sections
    title = f"{shown.title}: run {run.run_id}"
    return [dataclasses.replace(first, title=title), *others]


def _as_texts(sets: Sets) -> list[str]:
    """`KEY=VALUE` texts, with values in JSON, of which YAML is a superset."""
    if isinstance(sets, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in sets.items()]
    return list(sets)


def _follow(
    on_event: Callable[[RunEvent], object] | None, path: str, process: Any
) -> int:
    """Reports the events in a file until a process has ended."""
    report, new = on_event or (lambda _: None), NewEvents(Path(path))
    ended = False
    while True:
        for event in new.read():
            kind, when = event.pop("event"), event.pop("time")
            report(RunEvent(kind, when, event.pop("node", None), event))
        if ended:
            return process.returncode
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            ended = True
