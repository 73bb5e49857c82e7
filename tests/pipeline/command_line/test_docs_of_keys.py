"""`strategos docs`: each key as its model declares it, with an example that loads."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from strategos.pipeline import cli
from strategos.pipeline.command_line import docs as reference
from strategos.pipeline.config import introspect, loading
from strategos.pipeline.config.sections import Config

BASE = """
name: base
label: late
data: {examples: "data/*.csv"}
transform: {module: preprocessing}
trainer: {module: model}
evaluator: {task: binary, metrics: [auc]}
pusher: {to: serving}
"""
# What is wrong only without another setting.
_BESIDE = (
    "has no effect (under|without)|is for `by: time`|sets neither|needs a folder"
    "|no metric ranks|have no weight"
)
KEYS = {".".join(key.path): key for key in introspect.keys(Config)}


def docs(capsys, *words, expect=0):
    assert cli.main(["docs", *words]) == expect
    said = capsys.readouterr()
    return said.err if expect else said.out


def test_a_key_has_type_default_meaning_and_example(capsys):
    said = " ".join(docs(capsys, "trainer.epochs").split())
    assert said.startswith("key trainer.epochs allowed a whole number, at least 1")
    assert "default 5 meaning Passes over the training rows." in said
    assert said.endswith("example trainer: epochs: 5")
    assert "default required" in " ".join(docs(capsys, "pusher.to").split())


def test_a_section_lists_what_is_below_it(capsys):
    said = docs(capsys, "trainer.callbacks")
    assert "trainer.callbacks.early_stopping  " in said
    assert "trainer.callbacks.early_stopping.patience" not in said
    top = docs(capsys)
    assert all(f"  {name} " in top for name in introspect.fields(Config))


def test_a_name_of_the_user_stands_for_any(capsys):
    said = docs(capsys, "evaluator.bounds.auc.at_least")
    assert "evaluator.bounds.auc.at_least" in said and "auc:\n" in said
    assert "evaluator.bounds.NAME.may_drop" in docs(capsys, "evaluator.bounds")


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("trainer.epoch", "`trainer.epochs`"),
        ("batchsize", "`trainer.batch_size`"),
        ("epochs", "`trainer.epochs` or `trainer.phases.NAME.epochs`"),
        ("zzzzzz", "`strategos docs` lists the sections."),
    ],
)
def test_an_unknown_key_is_rejected_with_the_nearest_ones(capsys, word, near):
    said = docs(capsys, word, expect=2)
    assert f"{word}: unknown key" in said and near in said


def test_json_has_all_keys_below_a_section_as_they_are_declared(capsys):
    found = json.loads(docs(capsys, "run.engine", "--json"))
    assert [each["key"] for each in found] == [
        "run.engine",
        *(
            f"run.engine.{name}"
            for name in introspect.fields(
                introspect.model_at(Config, ("run", "engine"))
            )
        ),
    ]
    for each in found:
        key = KEYS[each["key"]]
        assert each["meaning"] == key.field.description
        assert each["allowed"] == introspect.describe(key.annotation)


def test_each_example_is_accepted_by_the_key(tmp_path):
    main = tmp_path / "pipeline.yaml"
    main.write_text(BASE)
    rejected = {}
    for name, key in KEYS.items():
        example = reference.described(key)["example"]
        if example is None or "…" in example:
            continue
        assert list(yaml.safe_load(example)) == [key.path[0]]
        piece = tmp_path / "piece.yaml"
        piece.write_text(example)
        try:
            loading.load(main, [piece], [])
        except loading.ConfigError as error:
            own = [
                each
                for each in error.problems
                if each.key == name and not re.search(_BESIDE, str(each))
            ]
            rejected |= {name: own} if own else {}
    assert rejected == {}


def test_no_default_differs_from_that_of_the_reference(capsys):
    for key in KEYS.values():
        about = reference.described(key)
        if about["default"] is not None:
            assert about["default"] == json.loads(json.dumps(key.field.default))
        assert not re.search("<class|typing", about["allowed"])
