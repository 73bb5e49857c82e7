"""The files that are generated from the models are up to date."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from strategos.pipeline.config import introspect
from strategos.pipeline.config.loading import load
from strategos.pipeline.config.sections import Config

REMEDY = "stale: run `python scripts/reference.py` and commit the result"
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


def _script():
    found = importlib.util.spec_from_file_location(
        "reference", ROOT / "scripts" / "reference.py"
    )
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


reference = _script()


def test_the_json_schema_is_up_to_date():
    assert reference.SCHEMA_FILE.read_text() == reference.json_schema(), REMEDY


def test_the_pages_of_keys_are_up_to_date():
    written = {
        path.relative_to(reference.DOCS).as_posix(): path.read_text()
        for path in (reference.DOCS / "keys.md", *reference.DOCS.glob("keys/*"))
    }
    assert written == reference.pages(), REMEDY


def test_each_key_stands_on_one_page():
    rows = "\n".join(reference.pages().values())
    for name in introspect.fields(Config):
        assert len(re.findall(rf"^\| `{name}` \| ", rows, re.M)) >= 1, name
    assert "| `distribution.strategy` |" in reference.pages()["keys/trainer.md"]
    assert "| `log_loss` |" in reference.pages()["keys/metrics.md"]


def test_every_key_is_described():
    for key in introspect.keys(Config):
        assert key.field.description, key.path
        assert introspect.describe(key.annotation), key.path


def test_the_json_schema_closes_every_section():
    schema = json.loads(reference.json_schema())
    sections = [schema, *schema["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections)


def test_the_json_schema_accepts_the_shortest_file_and_rejects_slips(workload):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(reference.json_schema()))
    settings = yaml.safe_load(workload.read_text().replace("1e-3", "0.001"))
    assert not list(validator.iter_errors(settings))
    settings["trainer"]["epoch"] = 3
    settings["evaluator"]["metrics"] = [3]
    assert len(list(validator.iter_errors(settings))) == 2
    settings["evaluator"]["metrics"] = ["a_plug_in"]
    assert len(list(validator.iter_errors(settings))) == 1


@pytest.mark.parametrize("name", ["flights", "digits"])
def test_the_examples_load_with_each_of_their_overlays(name):
    main = EXAMPLES / name / "pipeline.yaml"
    assert load(main).config.name == name
    for overlay in EXAMPLES.glob(f"{name}/*.yaml"):
        assert load(main, [overlay]).config


def test_the_yaml_in_the_docs_loads(write):
    def block(page):
        text = (reference.DOCS / page).read_text()
        return text.split("```yaml\n")[1].split("```")[0]

    first, bounds = block("configuration.md"), block("configuration/evaluation.md")
    assert load(write("pipeline.yaml", first + bounds)).config.evaluator
    training = block("configuration/training.md")
    path = write("training.yaml", training + "pusher: {to: serving}\n")
    assert load(write("main.yaml", first), [path]).config.trainer.warm_start == "latest"


def test_sections_that_may_be_left_out_are_marked_in_the_reference():
    rows = reference.pages()["keys/trainer.md"].splitlines()
    stopping = "| `callbacks.early_stopping` | a section, see below | none | Ends"
    assert any(row.startswith(stopping) for row in rows)
    switch = "| `callbacks.tensorboard` | true, false or a mapping with the keys"
    assert any(row.startswith(switch) for row in rows)
    assert not any(row.startswith("| `distribution.communication` ") for row in rows)
