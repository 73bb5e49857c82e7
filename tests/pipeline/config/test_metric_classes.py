"""Metrics by their class in `evaluator.metrics`."""

from __future__ import annotations

import pytest

from strategos.pipeline.config.loading import ConfigError, load

MCC = "MatthewsCorrelationCoefficient"


def problems(path, sets):
    with pytest.raises(ConfigError) as caught:
        load(path, sets=sets)
    return caught.value.problems


def test_a_class_and_its_arguments_become_a_name(workload):
    entry = "{class: RecallAtPrecision, config: {precision: 0.8, class_id: 1}}"
    bound = "RecallAtPrecision(class_id=1, precision=0.8)"
    sets = [f"evaluator.metrics=[auc, log_loss, {MCC}, {entry}]"]
    sets.append("evaluator.bounds={'" + bound + "': {at_least: 2, may_drop: 0.1}}")
    evaluator = load(workload, sets=sets).config.evaluator
    assert evaluator.metrics == ("auc", "log_loss", MCC, bound)
    assert evaluator.bounds[bound].at_least == 2


def test_a_class_of_a_head(workload):
    sets = [
        "label={late: late, delay: delay}",
        "evaluator={task: {late: binary, delay: regression}, metrics: [late.auc, "
        "{class: CosineSimilarity, config: {axis: -1}, head: delay}], "
        "bounds: {auc: null, 'delay.CosineSimilarity(axis=-1)': {at_least: 0}}}",
    ]
    evaluator = load(workload, sets=sets).config.evaluator
    assert evaluator.metrics == ("late.auc", "delay.CosineSimilarity(axis=-1)")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("MathewsCorrelationCoefficient", f"`{MCC}`?"),
        ("{class: Nothing}", "`Nothing` is no metric of TFMA or Keras"),
        ("{class: ConfusionMatrixPlot}", "but no plot"),
        ("{class: NO_PREDICTED_CLASS_ID}", "is not a metric"),
        ("{class: AUC}", "Write `auc`"),
        ("{class: AUC, config: {curv: PR}}", "has no argument `curv`"),
        ("{class: AUC, config: {curv: PR}}", "Did you mean `curve`?"),
        ("{class: AUC, config: {name: mine}}", "Remove it: the metric is called `AUC`"),
        ("{class: AUC, config: [PR]}", "no mapping of arguments"),
        ("{class: AUC, config: {num_thresholds: .inf}}", "finite"),
        ("{clas: AUC}", "`class`"),
        ("{class: 3}", "{class: NAME, config:"),
        ("{class: AUC, head: late, config: {curve: PR}}", "For several heads"),
    ],
)
def test_an_entry_that_is_no_metric_is_rejected(workload, entry, expected):
    found = problems(workload, sets=[f"evaluator.metrics=[auc, log_loss, {entry}]"])
    assert {problem.key for problem in found} == {"evaluator.metrics.2"}
    assert expected in "\n".join(map(str, found))


def test_an_unknown_direction_takes_either_bound_but_none_on_trivial(workload):
    sets = [f"evaluator.metrics=[auc, log_loss, {MCC}]"]
    sets.append(f"evaluator.bounds.{MCC}={{may_drop: 0.1, may_rise: 0.1}}")
    assert load(workload, sets=sets).config.evaluator.bounds[MCC].may_rise == 0.1
    sets[1] = f"evaluator.bounds.{MCC}={{better_than: trivial}}"
    (problem,) = problems(workload, sets=sets)
    assert f"{MCC} does not tell a model that has learned" in str(problem)
