"""`strategos runs compare` and `strategos reproduce`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strategos.components import exported, node_ids, worker_process
from strategos.components.errors import BadInputError, ExitCode, UserError
from strategos.components.files import temporary
from strategos.components.wording import counted, quoted
from strategos.pipeline import commands
from strategos.pipeline.comparing import on_kubeflow, reproduction, view
from strategos.pipeline.comparing.on_kubeflow import ClusterRuns
from strategos.pipeline.history import lineage as lineages
from strategos.pipeline.history import roots, runs
from strategos.pipeline.history.lineage import Lineage
from strategos.pipeline.history.runs import Run
from strategos.pipeline.history.store import NoRunsError, Store
from strategos.pipeline.made_from import compared, record, stack
from strategos.pipeline.made_from.record import Kept
from strategos.pipeline.view import terminal
from strategos.pipeline.view.report import paragraph

_DIFFERENCE = "strategos.components.trainer.run.difference"
_SHOWN = 10
_ALONE = "there is only one run so far, and nothing to compare it with"
_ANOTHER = "Run the pipeline again after a change."


def compare(history: roots.History, ids: Sequence[str], *, as_json: bool) -> None:
    """Compares two runs and prints the differences.

    Args:
      history: The root's history.
      ids: The ids of two runs, or their beginnings; of one run, to compare it with the
        last run; of none, for the last two.
      as_json: Whether to print JSON.

    Raises:
      BadInputError: There are no two runs, they are the same or of different pipelines,
        or one has not ended.
    """
    store = history.store
    chosen = list(ids) or [each.run_id for each in _last(history, 2)[::-1]]
    if len(chosen) == 1:
        chosen += [each.run_id for each in _last(history, 1)]
    before, after = (runs.run(store, each) for each in chosen)
    kept = functools.partial(record.read, str(store.root))
    _print(compared.compare(before, after, kept), as_json=as_json)


def compare_on_kubeflow(
    cluster: ClusterRuns, ids: Sequence[str], *, as_json: bool
) -> None:
    """Compares two runs by the records that they have left in an object store.

    Args:
      cluster: The runs.
      ids: As for `compare`.
      as_json: Whether to print JSON.

    Raises:
      BadInputError: As for `compare`.
      UserError: This machine cannot read the object store.
    """
    listed = cluster.listed
    if len(ids) < 2 and len(listed) < 2 - len(ids):
        raise BadInputError(_ALONE, remedy=_ANOTHER)
    first, second = (*ids, *(None, None))[:2]
    after = runs.chosen(listed, second)
    before = runs.chosen(listed if first else listed[1:], first)
    _print(compared.compare(before, after, cluster.kept), as_json=as_json)


def _print(comparison: compared.Comparison, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(compared.to_json(comparison), indent=2))
    else:
        view.show(comparison)


def reproduce(arguments: argparse.Namespace) -> int:
    """`strategos reproduce`: makes the model of a run again, and compares both.

    Raises:
      UserError: The run is still going or has no record, or something that it was made
        from is gone.
    """
    with temporary.folder() as scratch:
        original = _original(arguments, Path(scratch, "model"))
        return _reproduce(arguments, original)


def _reproduce(arguments: argparse.Namespace, original: _Original) -> int:
    run, kept = original.run, original.kept
    weights = reproduction.complete(run, kept)
    folder = _new_folder(arguments.to or f"reproduced-{run.run_id}")
    yaml = reproduction.write(kept, folder, weights)
    _name_stack(kept)
    print(f"making run {run.run_id} again in {folder}", file=sys.stderr, flush=True)
    last = node_ids.EVALUATOR if run.summary else node_ids.TRAINER
    made = commands.run_to(last, str(yaml)).run
    again = _model(lineages.lineage(_store_of(yaml), made.run_id))
    with worker_process.log_kept_back():
        request = {"first": original.model, "second": again}
        difference = worker_process.run(_DIFFERENCE, request, name="difference")
    equal = (
        not (difference["differing"] or difference["assets"])
        and run.metrics == made.metrics
    )
    if arguments.json:
        runs_of = {"run": run.run_id, "folder": str(folder), "equal": equal}
        metrics = {"before": run.metrics, "after": made.metrics}
        print(json.dumps({**runs_of, **difference, "metrics": metrics}, indent=2))
    else:
        _show(difference, run, made, equal=equal)
    return ExitCode.DONE if equal else ExitCode.FAILED


@dataclasses.dataclass(frozen=True)
class _Original:
    """A run that is made again.

    Attributes:
      run: The run.
      kept: Its record, with paths of this machine.
      model: The folder of its SavedModel on this machine.
    """

    run: Run
    kept: Kept
    model: str


def _original(arguments: argparse.Namespace, scratch: Path) -> _Original:
    """The run that a command names; a model on a cluster is downloaded to `scratch`."""
    try:
        history = roots.open_history(arguments.pipeline, arguments.root)
    except NoRunsError:
        about = arguments.pipeline, arguments.root
        cluster = on_kubeflow.opened(*about, named=arguments.model)
        if not cluster:
            raise
        run = cluster.of_model(arguments.model)
        kept = cluster.kept_here(run.run_id)
        return _Original(run, kept, cluster.model(run, scratch))
    _reject_running(history.store, arguments.model)
    traced = lineages.lineage(history.store, arguments.model)
    run = runs.run(history.store, traced.run_id)
    kept = record.read(str(history.store.root), run.run_id, run.log)
    return _Original(run, kept, _model(traced))


def _reject_running(store: Store, model: str) -> None:
    named = None
    with contextlib.suppress(UserError):  # a version is no run
        named = runs.run(store, model)
    if named:
        compared.reject_running(named)


def _last(history: roots.History, number: int) -> list[Run]:
    listed = runs.history(history.store, history.pipeline, number)
    if len(listed) < number:
        raise BadInputError(_ALONE, remedy=_ANOTHER)
    return listed


def _model(traced: Lineage) -> str:
    """The folder of a model's SavedModel: of the run, else of the pushed version.

    Raises:
      UserError: Both are gone.
    """
    made = [each for step in traced.steps for each in step.outputs]
    folders = [
        os.path.join(each.uri, exported.SERVING_DIR)
        for each in made
        if each.type == "Model" and "strategy" in each.properties
    ]
    for folder in (*folders[-1:], traced.model):
        if os.path.isfile(os.path.join(folder, exported.SAVED_MODEL)):
            return folder
    raise UserError(
        f"run {traced.run_id}: neither its model nor the version that was pushed of it "
        "is on this machine any more, so there is nothing to compare with"
    )


def _new_folder(name: str) -> Path:
    folder = Path(name).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInputError(
            f"{name} exists already", remedy="Name another folder with `--to`."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"{name} cannot be made: {error.strerror}") from None
    return folder


def _name_stack(kept: Kept) -> None:
    """Prints differences from the stack of the run, before anything is made."""
    now = stack.of_this_machine()
    console = terminal.console(sys.stderr)
    differing = compared.stack_changes(kept.made_from.stack, now)
    view.changes(console, "stack then and now", differing)


def _store_of(yaml: Path) -> Store:
    return roots.open_history(str(yaml), None, announce=lambda _: None).store


def _show(difference: Mapping[str, Any], run: Run, made: Run, *, equal: bool) -> None:
    console = terminal.console()
    differing, weights = difference["differing"], difference["weights"]
    all_of = (
        f"{counted(weights, 'weight')} of {counted(difference['numbers'], 'number')}"
    )
    if equal:
        text = f"bit-equal: {all_of}, and all metrics"
        paragraph(console, "reproduced", text)
        return
    text = f"{len(differing)} of {all_of} differ"
    known = [x for x in differing if x["difference"] is not None]
    worst = sorted(known, key=lambda each: -each["difference"])[:_SHOWN]
    lines = [f"{x['name']}: by up to {x['difference']:.3g}" for x in worst]
    lines += [
        f"{x['name']}: only in one of the models, or of another shape"
        for x in differing
        if x["difference"] is None
    ][:_SHOWN]
    if difference["assets"]:
        lines.append(f"files {', '.join(quoted(difference['assets'][:_SHOWN]))} differ")
    paragraph(console, "differs", "\n".join([text, *lines]))
    changed = [
        compared.MetricChange(name, run.metrics.get(name), value)
        for name, value in made.metrics.items()
    ]
    terminal.show(console, view.metrics(changed, "metrics"), indent=2)
