"""Chooses between a candidate from the live model's weights and one from fresh ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from strategos.components.errors import ExitCode
from strategos.components.evaluation.metrics import METRICS, bare
from strategos.pipeline.config.sections import Config
from strategos.pipeline.run.orchestration import Result

if TYPE_CHECKING:
    from strategos.pipeline.history.runs import Run

WARM, FRESH = "warm start", "from scratch"


def trials(
    configs: Mapping[str, Config],
    train: Callable[[Config], Result],
    record_of: Callable[[str], Run],
) -> Result | dict[str, Run]:
    """Trains and evaluates the candidate once with the settings of each variant.

    Args:
      configs: Settings by variant.
      train: Runs the pipeline up to the Evaluator.
      record_of: The record of a run by its id.

    Returns:
      The runs that evaluated a model, by variant; none if the first one failed, since
      the others would as well. If a run was interrupted, its result instead.
    """
    done: dict[str, Run] = {}
    for name, config in configs.items():
        result = train(config)
        if result.exit_code == ExitCode.INTERRUPTED:
            return result
        if result.exit_code == ExitCode.DONE:
            done[name] = record_of(result.run_id)
        elif not done:
            break
    return done


def better(done: Mapping[str, Run], metric: str) -> str:
    """The variant that goes on: first by its bounds, then by a metric.

    E.g. a variant within its bounds precedes one with a better metric outside of them.

    Args:
      done: The runs by variant; of equal ones, the first counts.
      metric: Name of the metric; an undefined value is the worst.
    """

    def rank(name: str) -> tuple[bool, float]:
        badness = METRICS[bare(metric)].badness(_value(done[name], metric))
        return not done[name].blessed, math.inf if math.isnan(badness) else badness

    return min(done, key=rank)


def described(done: Mapping[str, Run], metric: str) -> str:
    """A sentence with the metric of each variant and the variant that goes on.

    Args:
      done: The runs by variant.
      metric: As in `better`.
    """
    parts = []
    for name in (WARM, FRESH):
        run = done.get(name)
        held = "" if run is None or run.blessed else ", bounds not met"
        value = "failed" if run is None else f"{metric} {_value(run, metric):.4f}"
        parts.append(f"{name}: {value}{held}")
    chosen = better(done, metric)
    return f"Compared: {'; '.join(parts)}. {chosen.capitalize()} goes on."


def _value(run: Run, metric: str) -> float:
    return run.metrics.get(metric, math.nan)
