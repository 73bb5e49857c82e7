"""Metrics by class that are rejected before the first node, by a rehearsal."""

from __future__ import annotations

import pytest

from strategos.components import worker_process
from strategos.pipeline.checks import class_metrics
from strategos.pipeline.config.loading import load

pytestmark = pytest.mark.long  # starts a process that imports TFMA

GOOD = "MatthewsCorrelationCoefficient"


def check(workload, *metrics, **others):
    sets = [f"evaluator.metrics=[auc, {', '.join(metrics)}]"]
    sets += [f"{key}={value}" for key, value in others.items()]
    return class_metrics.check(load(workload, sets=sets).config)


def test_what_cannot_be_computed_is_named_by_its_entry(workload, monkeypatch):
    entry = "{class: AUC, config: {curve: XY}}"
    wrong = "SparseCategoricalCrossentropy", entry, "QueryStatistics"
    found = check(workload, GOOD, *wrong)
    messages = {problem.key: str(problem) for problem in found}
    prefix = "evaluator.metrics"
    assert {*messages} == {f"{prefix}.2", f"{prefix}.3", f"{prefix}.4"}
    assert "computed for the task binary: InvalidArg" in messages[f"{prefix}.2"]
    assert "'XY' is not a valid AUCCurve" in messages[f"{prefix}.3"]
    assert "reads all rows of a query together" in messages[f"{prefix}.4"]

    def refuse(*_, **__):
        raise AssertionError("what has passed is computed again")

    monkeypatch.setattr(worker_process, "run", refuse)
    assert check(workload, GOOD) == []
    assert check(workload, "mean_label") == []
    with pytest.raises(AssertionError):  # with weights, it is another computation
        check(workload, GOOD, weight="tail")


def test_each_head_has_the_rows_of_its_task(workload):
    name, task = "CategoricalCrossentropy", "{late: multi_class, tail: binary}"
    sets = [
        "label={late: late, tail: tail}",
        f"evaluator={{task: {task}, metrics: [tail.{name}, late.{name}]}}",
        "evaluator.bounds=null",
    ]
    found = class_metrics.check(load(workload, sets=sets).config)
    assert [problem.key for problem in found] == ["evaluator.metrics.1"]
