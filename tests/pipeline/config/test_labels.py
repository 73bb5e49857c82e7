"""A label of several heads, and the settings that must fit it."""

from __future__ import annotations

import pytest

from strategos.pipeline.config.loading import ConfigError, load

HEADS = """\
label: {kind: species, size: amount}
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model}
evaluator:
  task: {kind: multi_class, size: regression}
  metrics: [kind.accuracy, size.mae]
  bounds: {size.mae: {at_most: 3}}
"""


def test_heads_have_columns_tasks_and_metrics(write):
    config = load(write("pipeline.yaml", HEADS)).config
    assert config.label == '{"kind": "species", "size": "amount"}'
    assert config.target.columns == ("species", "amount")
    assert config.target.heads["size"].text == "amount"
    assert config.evaluator.task == {"kind": "multi_class", "size": "regression"}
    twice = HEADS.replace("size: amount", "size: species")
    several = twice.replace("kind: species", "kind: [rain, wind]")
    several = several.replace("multi_class", "multi_label")
    several = several.replace("kind.accuracy", "kind.accuracy, kind.recall@top2")
    target = load(write("c/pipeline.yaml", several)).config.target
    assert target.columns == ("rain", "wind", "species") and not target.is_several
    assert target.heads["kind"].is_several and target.of(target.text) == target
    assert load(write("b/pipeline.yaml", twice)).config.target.columns[1] == "species"


@pytest.mark.parametrize(
    ("old", "new", "key", "text"),
    [
        ("{kind: species, size: amount}", "{kind: species}", "label", "two heads or"),
        ("kind: species", "kind: [a, b]", "evaluator.task.kind", "names 2 columns"),
        ("kind: species", "kind: [a, a]", "label", "`a` is named twice"),
        (
            "at_most: 3",
            "at_most: 3, slices: {class: {at_most: 2}}",
            "evaluator.bounds.size.mae.slices.class",
            "not in `evaluator.slices`",
        ),
        ("kind: species", "a.b: species", "label", "the name of an output"),
        ("kind: species", "kind: 3", "label", "two heads or more"),
        ("kind: species", "kid: species", "evaluator.task.kind", "Did you mean `kid`"),
        (", size: regression", "", "evaluator.metrics.1", "no head that `evaluator.t"),
        (
            "  task: {kind: multi_class, size: regression}\n"
            "  metrics: [kind.accuracy, size.mae]\n  bounds: {size.mae: {at_most: 3}}",
            "  metrics: [auc]",
            "evaluator.task",
            "the heads `kind` and `size`",
        ),
        ("kind: multi_class", "kind: reconstruction", "evaluator.task", "multi_class"),
        ("kind.accuracy", "kind.rmse", "evaluator.metrics.0", "for the task multi_cla"),
        ("kind.accuracy", "accuracy", "evaluator.metrics.0", "Write `HEAD.METRIC`"),
        (
            "at_most: 3",
            "may_drop: 3",
            "evaluator.bounds.size.mae.may_drop",
            "Use `may_rise`",
        ),
        (
            "model}",
            "model, class_weight: balanced}",
            "trainer.class_weight",
            "a class for each head",
        ),
        ("data:", "weight: amount\ndata:", "weight", "the label would weigh itself"),
        ("}\ntransf", ", missing: {amount: 0}}\ntransf", "data.missing.amount", "unla"),
    ],
)
def test_settings_that_do_not_fit_the_heads_are_rejected(write, old, new, key, text):
    assert old in HEADS
    with pytest.raises(ConfigError) as caught:
        load(write("pipeline.yaml", HEADS.replace(old, new, 1)))
    found = {problem.key: str(problem) for problem in caught.value.problems}
    assert key in found and text in found[key], found


FEATURES = """\
label: {reconstruct: all}
data: {examples: data/*.csv}
transform: {module: preprocessing}
trainer: {module: model}
evaluator:
  task: reconstruction
  metrics: [mse]
  bounds: {mse: {better_than: trivial, slices: {feature: {at_most: 2}}}}
"""


def test_features_are_reconstructed_in_place_of_a_label(write):
    config = load(write("pipeline.yaml", FEATURES)).config
    target = config.target
    assert (config.label, target.columns) == ('{"reconstruct": "all"}', ())
    assert target.reconstructs and target.name == "all features"
    known = target.among({"b", "a"})
    assert (known.columns, known.withheld) == (("a", "b"), ())
    assert known.text == '{"reconstruct": ["a", "b"]}' and known == known.of(known.text)
    listed = load(write("b/pipeline.yaml", FEATURES.replace("all", "[b, a]"))).config
    assert listed.target.columns == listed.target.among({"c"}).columns == ("b", "a")
    heads = FEATURES.replace("{reconstruct: all}", "{reconstruct: all, b: c}")
    heads = heads.partition("evaluator:")[0]  # two heads, one of which is called so
    assert load(write("c/pipeline.yaml", heads)).config.target.heads["b"].text == "c"


@pytest.mark.parametrize(
    ("old", "new", "key", "text"),
    [
        ("all", "amount", "label", "or a list of features"),
        ("all", "[]", "label", "or a list of features"),
        ("all", "[a, a]", "label", "named twice"),
        (
            "reconstruct:",
            "recontruct:",
            "label",
            "without a label, `{reconstruct: all}",
        ),
        ("{reconstruct: all}", "late", "evaluator.task", "`label` is one"),
        (
            "reconstruction\n  metrics: [mse]\n  bounds: {mse: {better_than: trivial, "
            "slices: {feature: {at_most: 2}}}}",
            "regression\n  metrics: [mse]",
            "evaluator.task",
            "features to reconstruct",
        ),
        ("[mse]", "[mse, auc]", "evaluator.metrics.1", "Allowed: mae, mse, rmse"),
        ("[mse]", "[mse, Poisson]", "evaluator.metrics.1", "one label a row"),
        (
            "metrics: [mse]",
            "metrics: [mse]\n  slices: [[feature, shop]]",
            "evaluator.slices.0",
            "stands for the features",
        ),
        (
            "model}",
            "model, class_weight: balanced}",
            "trainer.class_weight",
            "`label` names none",
        ),
        ("model}", "model, warm_start: /m}", "trainer.warm_start", "may move"),
        ("csv}", "csv, unlabelled: drop}", "data.unlabelled", "`label` names none"),
        (
            "{reconstruct: all}",
            "{reconstruct: [a]}\nweight: a",
            "weight",
            "the model does not get the weight",
        ),
    ],
)
def test_settings_that_do_not_fit_features_to_reconstruct_are_rejected(
    write, old, new, key, text
):
    assert old in FEATURES
    with pytest.raises(ConfigError) as caught:
        load(write("pipeline.yaml", FEATURES.replace(old, new, 1)))
    found = {problem.key: str(problem) for problem in caught.value.problems}
    assert key in found and text in found[key], found
