"""Entries of `evaluator.slices`: what is read, and what is rejected before a run."""

from __future__ import annotations

import pytest

from strategos.components.errors import BadInputError
from strategos.pipeline.config.loading import load


@pytest.fixture
def reading(workload):
    def read(slices, **others):
        values = [f"evaluator.{key}={value}" for key, value in others.items()]
        sets = [f"evaluator.slices={slices}", *values]
        return load(workload, sets=sets).config.evaluator

    return read


def test_crosses_and_bins_are_read(reading):
    slices = "[carrier, [carrier, {feature: distance, bins: [500, 1e3]}]]"
    bounds = "{auc: {slices: {carrier x distance: {at_least: 0.5}}}}"
    found = reading(slices, metrics="[auc]", bounds=bounds)
    binned = {"feature": "distance", "bins": (500, 1000.0)}
    assert found.slices == ("carrier", ("carrier", binned))
    assert found.bounds["auc"].slices["carrier x distance"].at_least == 0.5


@pytest.mark.parametrize(
    ("slices", "key", "message"),
    [
        (
            "[{feature: distance, bins: [500, 100]}]",
            "evaluator.slices.0",
            "the bins of `distance` do not ascend: 100 follows 500",
        ),
        (
            "[a, {feature: distance, bins: [500, 500.0]}]",
            "evaluator.slices.1",
            "the bins of `distance` do not ascend: 500.0 follows 500",
        ),
        (
            "[{feature: distance, bins: [a]}]",
            "evaluator.slices.0",
            "the bins of `distance` are no numbers",
        ),
        (
            "[{feature: distance, bins: [.nan]}]",
            "evaluator.slices.0",
            "the bins of `distance` are no numbers",
        ),
        (
            "[{feature: distance}]",
            "evaluator.slices.0",
            "the bins of `distance` are no numbers",
        ),
        (
            "[{feature: distance, bin: [1]}]",
            "evaluator.slices.0",
            "unknown key `bin`",
        ),
        ("[[carrier]]", "evaluator.slices.0", 'received ["carrier"] (a list)'),
        ("[[a, [b, c]]]", "evaluator.slices.0", 'received ["b", "c"] (a list)'),
        ("[3]", "evaluator.slices.0", "received 3 (a whole number)"),
        ("[[a, b, a]]", "evaluator.slices.0", "the cross names `a` twice"),
        ("[[a, b], [b, a]]", "evaluator.slices.1", "`b x a` is sliced by twice"),
        ('["a x b", [a, b]]', "evaluator.slices.1", "`a x b` is the name of another"),
        (
            "[d, {feature: d, bins: [1]}]",
            "evaluator.slices.1",
            "`d` is sliced by twice",
        ),
    ],
)
def test_what_is_no_slice_is_rejected_by_name(reading, slices, key, message):
    with pytest.raises(BadInputError) as caught:
        reading(slices)
    (problem,) = caught.value.problems
    assert problem.key == key and message in str(problem)


def test_classes_of_multi_label_are_not_crossed(reading):
    others = {"task": "multi_label", "metrics": "[auc]", "bounds": "null"}
    with pytest.raises(BadInputError, match="`class` stands for the classes of the"):
        reading("[[class, carrier]]", **others)
    assert reading("[class, carrier]", **others).slices == ("class", "carrier")


def test_a_bound_on_a_cross_that_is_not_sliced_by_is_rejected(reading):
    bounds = "{auc: {slices: {a x c: {at_least: 0.5}}}}"
    with pytest.raises(BadInputError) as caught:
        reading("[[a, b]]", metrics="[auc]", bounds=bounds)
    assert "a bound on `a x c`, which is not in `evaluator.slices`" in str(caught.value)
    assert "Did you mean `a x b`" in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("recall@1.5", "`recall@1.5` is no metric, and `recall` is"),
        ("auc@0.3", "Allowed: a threshold between 0 and 1 behind `@`, such as"),
        ("accuracy@top0", "`accuracy@top0` is no metric, and `accuracy` is"),
        ("accuracy@top3", "`accuracy@top3` is not defined for the task binary"),
        ("recal@0.3", "`recal@0.3` is not a metric"),
    ],
)
def test_parameters_that_a_metric_does_not_take_are_rejected(reading, metric, message):
    with pytest.raises(BadInputError) as caught:
        reading("[]", metrics=f"[{metric}]", bounds="null")
    (problem,) = caught.value.problems
    assert problem.key == "evaluator.metrics.0" and message in str(problem)


def test_metrics_with_a_parameter_have_bounds(reading):
    metrics, bounds = (
        "[auc, recall@0.3]",
        "{recall@0.3: {at_least: 0.8, may_drop: 0.1}}",
    )
    found = reading("[carrier]", metrics=metrics, bounds=bounds)
    assert found.bounds["recall@0.3"].at_least == 0.8
    with pytest.raises(BadInputError, match=r"recall@0\.3 is at most 1: nothing can"):
        reading("[carrier]", metrics=metrics, bounds="{recall@0.3: {at_least: 2}}")


def test_more_classes_than_the_label_has_are_rejected(workload):
    task = "{task: multi_label, metrics: [recall@top3], slices: [], bounds: null}"
    sets = ["label=[late, tail]", f"evaluator={task}"]
    with pytest.raises(BadInputError, match="`recall@top3`: `label` names 2 classes"):
        load(workload, sets=sets)


def test_intervals_of_slices_need_a_level(reading):
    found = reading("[carrier]", confidence_level=0.9, slice_intervals="true")
    assert found.slice_intervals
    with pytest.raises(BadInputError) as error:
        reading("[carrier]", slice_intervals="true")
    (problem,) = error.value.problems
    assert problem.key == "evaluator.slice_intervals"
    assert "has no effect without a level" in str(problem)
    assert "evaluator.confidence_level" in str(problem)
