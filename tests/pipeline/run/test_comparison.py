from __future__ import annotations

import math
import types

import pytest

from strategos.components.errors import ExitCode
from strategos.pipeline.history.runs import Run
from strategos.pipeline.run import comparison
from strategos.pipeline.run.comparison import FRESH, WARM
from strategos.pipeline.run.orchestration import Result


def evaluated(blessed=True, **metrics):
    return Run("r", "p", 0.0, 1.0, "finished", blessed=blessed, metrics=metrics)


@pytest.mark.parametrize(
    ("warm", "fresh", "chosen"),
    [
        (evaluated(auc=0.7), evaluated(auc=0.8), FRESH),
        (evaluated(auc=0.8), evaluated(auc=0.7), WARM),
        (evaluated(auc=0.8), evaluated(auc=0.8), WARM),
        (evaluated(log_loss=0.7), evaluated(log_loss=0.6), FRESH),
        (evaluated(calibration=1.3), evaluated(calibration=0.8), FRESH),
        (evaluated(blessed=False, auc=0.9), evaluated(auc=0.8), FRESH),
        (evaluated(blessed=False, auc=0.9), evaluated(blessed=False, auc=0.8), WARM),
        (evaluated(auc=math.nan), evaluated(auc=0.1), FRESH),
        (evaluated(), evaluated(auc=0.1), FRESH),
    ],
)
def test_the_better_is_the_one_that_may_serve_then_that_of_the_metric(
    warm, fresh, chosen
):
    done = {WARM: warm, FRESH: fresh}
    metric = next(iter({**warm.metrics, **fresh.metrics}))
    assert comparison.better(done, metric) == chosen


def test_both_figures_are_told():
    done = {WARM: evaluated(auc=0.71234), FRESH: evaluated(blessed=False, auc=0.9)}
    assert comparison.described(done, "auc") == (
        "Compared: warm start: auc 0.7123; from scratch: auc 0.9000, bounds not met. "
        "Warm start goes on."
    )
    del done[FRESH]
    assert "; from scratch: failed. Warm" in comparison.described(done, "auc")


@pytest.mark.parametrize(
    ("codes", "trained", "kept"),
    [
        ((ExitCode.DONE, ExitCode.DONE), 2, [WARM, FRESH]),
        ((ExitCode.DONE, ExitCode.FAILED), 2, [WARM]),
        ((ExitCode.FAILED, ExitCode.DONE), 1, []),
        ((ExitCode.STOPPED, ExitCode.DONE), 1, []),
    ],
)
def test_trials_that_fail(codes, trained, kept):
    ended = iter(codes)
    asked = []

    def train(config):
        asked.append(config)
        return Result(config.name, "", next(ended))

    configs = {name: types.SimpleNamespace(name=name) for name in (WARM, FRESH)}
    found = comparison.trials(configs, train, lambda run_id: run_id)
    assert found == {name: name for name in kept}
    assert len(asked) == trained


def test_an_interrupted_trial_ends_all():
    result = Result("r", "interrupted", ExitCode.INTERRUPTED)
    assert comparison.trials({WARM: None, FRESH: None}, lambda c: result, str) is result
