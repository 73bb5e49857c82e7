"""`strategos bisect`: which change between two runs made a metric worse."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from strategos.components.errors import BadInputError, ExitCode, required
from strategos.components.evaluation.metrics import badness
from strategos.components.wording import choices, counted, listed
from strategos.pipeline.comparing import (
    bisected,
    delta_debugging,
    reproduction,
    separable,
    trials,
)
from strategos.pipeline.history import roots, runs
from strategos.pipeline.history.runs import Run
from strategos.pipeline.made_from import compared, record

SHARE = 0.2
"""A change counts if it moves the metric by more than this part of the difference."""


def bisect(arguments: argparse.Namespace) -> int:
    """`strategos bisect GOOD BAD`: runs states between two runs; names the causes.

    Raises:
      UserError: A run has no record, or cannot be made again.
      BadInputError: The first run is not better, or something that a run was made from
        is gone.
    """
    history = roots.open_history(arguments.pipeline, arguments.root)
    store = history.store
    good, bad = (runs.run(store, each) for each in (arguments.good, arguments.bad))
    compared.reject(good, bad)
    metric = _metric(good, bad, arguments.metric)
    kept = [
        (known, reproduction.complete(run, known))
        for run in (good, bad)
        for known in [record.read(str(store.root), run.run_id, run.log)]
    ]
    first, second = (separable.state(*each) for each in kept)
    groups = separable.changes(first, second)
    if not any(groups):
        raise BadInputError(
            f"runs {good.run_id} and {bad.run_id} are made from the same settings, "
            "code and data",
            remedy="`strategos runs compare` shows whether the stack differs.",
        )
    folder = Path(arguments.to or f"bisected-{good.run_id}-{bad.run_id}").resolve()
    tried = trials.open_folder(folder, good.run_id, bad.run_id)
    made = trials.Trials(folder, first, metric, arguments.runs, tried)
    _announce(groups, made)
    stack = compared.stack_changes(*(each.made_from.stack for each, _ in kept))
    outcome = _bisect(made, groups, stack, good, bad)
    if arguments.json:
        print(json.dumps(bisected.to_json(outcome), indent=2))
    else:
        bisected.show(outcome)
    return ExitCode.DONE if outcome.is_complete else ExitCode.FAILED


def _announce(
    groups: Sequence[Sequence[separable.Change]], made: trials.Trials
) -> None:
    counts = [
        f"{kind} {len(group)}"
        for kind, group in zip(separable.KINDS, groups, strict=True)
        if group
    ]
    print(
        f"{counted(sum(map(len, groups)), 'change')} ({', '.join(counts)}), at most "
        f"{counted(made.most, 'run')} besides GOOD and BAD again, in {made.folder}",
        file=sys.stderr,
        flush=True,
    )


def _metric(good: Run, bad: Run, name: str | None) -> str:
    """The metric to bisect: the named one, or the first that is worse in `bad`."""
    for run in (good, bad):
        if not run.metrics:
            raise BadInputError(
                f"run {run.run_id} evaluated no model: it has no metrics"
            )
    both = [each for each in good.metrics if each in bad.metrics]
    if name is not None and name not in both:
        raise BadInputError(
            "no metric of both runs",
            key="--metric",
            received=name,
            expected=choices(both),
        )
    names = both if name is None else [name]
    worse = [x for x in names if _worse(x, good.metrics[x], bad.metrics[x]) > 0]
    if not worse:
        values = [f"{x} {good.metrics[x]:.6g} and {bad.metrics[x]:.6g}" for x in names]
        raise BadInputError(
            f"run {good.run_id} is not better than run {bad.run_id}: "
            f"{listed(values[:3])}",
            remedy="Name the better run first, or a metric that is worse: --metric.",
        )
    return worse[0]


def _worse(metric: str, before: float, after: float) -> float:
    """By how much a value is worse than another, in units of the metric."""
    return badness(metric, after) - badness(metric, before)


def _bisect(
    made: trials.Trials,
    groups: Sequence[Sequence[separable.Change]],
    stack: tuple[compared.Change, ...],
    good: Run,
    bad: Run,
) -> bisected.Bisected:
    changes = [change for group in groups for change in group]
    metric = made.metric
    recorded = good.metrics[metric], bad.metrics[metric]
    again = made.end("GOOD again", ()), made.end("BAD again", changes)
    moved = _worse(metric, *again)

    def fails(chosen: Sequence[separable.Change]) -> bool:
        value = made.value(chosen)
        return value is not None and _worse(metric, again[0], value) > SHARE * moved

    is_there = moved > SHARE * _worse(metric, *recorded)
    result = delta_debugging.search(groups if is_there else [], fails)
    causes = []
    for each in result.causes:
        value = required(made.value(each))
        causes.append(
            bisected.Cause(each, value, _worse(metric, again[0], value) / moved)
        )
    return bisected.Bisected(
        good,
        bad,
        metric,
        recorded=recorded,
        again=again,
        causes=tuple(causes),
        suspects=result.suspects,
        others=result.rest if is_there else tuple(changes),
        rest=None if result.suspects else made.value(result.rest),
        stack=stack,
        runs=made.made,
        share=SHARE,
        folder=str(made.folder),
    )
