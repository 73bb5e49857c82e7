"""`strategos validate` names every mistake at once, and no one that only follows."""

from __future__ import annotations

import json

import pytest

from strategos.pipeline import cli


def validated(capsys, path):
    """Exit code, and the keys of the problems that are named."""
    code = cli.main(["validate", str(path)])
    lines = capsys.readouterr().err.splitlines()
    heads = [line for line in lines if line[:1] != " " and " problems in " not in line]
    return code, [head.removeprefix("strategos: ").split(": ")[1] for head in heads]


@pytest.mark.parametrize(
    ("mistake", "key"),
    [
        ("epochs: many", "trainer.epochs"),  # of type
        ("warm_start: latest", "pusher"),  # of two sections
        ("epoch: 3", "trainer.epoch"),  # of spelling
    ],
)
def test_a_mistake_in_the_settings_hides_none_in_the_files(
    write, workload, capsys, mistake, key
):
    text = workload.read_text().replace("pusher: {to: serving}\n", "")
    text = text.replace("label: late", "label: lade").replace("[tail]", "[tale]")
    text = text.replace("{module: preprocessing}", "{module: preprocesing}")
    text = text.replace("  module: model", f"  module: modell\n  {mistake}")
    code, keys = validated(capsys, write("wrong.yaml", text))
    files = {"label", "data.split.keys", "transform.module", "trainer.module"}
    assert code == 2
    assert sorted(keys) == sorted({key, *files})


@pytest.mark.parametrize("metrics", ["[auk]", "[]", "[auk, auc]", "[mae]", "7"])
def test_metrics_that_are_wrong_hide_no_slice(write, workload, capsys, metrics):
    text = workload.read_text().replace("slices: [carrier]", "slices: [carrier, tale]")
    text = text.replace("[auc, log_loss]", metrics)
    code, keys = validated(capsys, write("wrong.yaml", text))
    assert code == 2
    assert "evaluator.slices" in keys
    assert any(key.startswith("evaluator.metrics") for key in keys)
    assert len(keys) == 2, keys


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("label: late\n", "", ["label"]),
        ("label: late\n", "label: [1]\n", ["label"]),
        ("transform: {module: preprocessing}\n", "", ["transform"]),
        ("  examples: data/span-{SPAN}/*.csv\n", "", ["data.examples"]),
        ("  metrics: [auc, log_loss]\n", "", ["evaluator.metrics"]),
        ("[auc, log_loss]", "[auc, log_los]", ["evaluator.metrics.1"]),
        ("to: serving", "too: serving", ["pusher.too"]),
    ],
)
def test_nothing_is_named_that_only_follows(write, workload, capsys, old, new, keys):
    text = workload.read_text()
    assert old in text
    code, found = validated(capsys, write("wrong.yaml", text.replace(old, new)))
    assert (code, found) == (2, keys)


def test_types_of_own_nodes_follow_and_validate_says_so(
    workload, copy_workload, capsys
):
    copy_workload("own", workload.parent)
    text = "nodes: {Sum: {component: own:Beamed}, C: {component: own:Copy}}\n"
    workload.write_text(workload.read_text() + text)
    assert cli.main(["validate", str(workload)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "note: the types of Sum, C are checked when the pipeline is compiled" in said
    assert not (workload.parent / "runs").exists()


def test_modules_import_from_the_folder_of_the_yaml_that_is_a_package(
    write, workload, capsys
):
    """As `tfx template copy` makes one."""
    for name in ("__init__.py", "models/__init__.py", "models/sizes.py"):
        write(name, "UNITS = 3\n")
    source = (workload.parent / "model.py").read_text()
    write("models/model.py", f"from models.sizes import UNITS\n{source}")
    path = write(
        "wrong.yaml", workload.read_text().replace(": model", ": models.model")
    )
    assert validated(capsys, path)[0] == 0


def test_json_has_each_problem_with_its_place_and_the_notes(write, workload, capsys):
    assert cli.main(["validate", str(workload), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"problems": [], "notes": []}
    text = workload.read_text().replace("label: late", "label: lade")
    path = write("wrong.yaml", text)
    assert cli.main(["validate", str(path), "--json", "--set", "trainer.epochs=0"]) == 2
    told = capsys.readouterr()
    label, epochs = json.loads(told.out)["problems"]
    line = 1 + text.splitlines().index("label: lade")
    assert (label["source"], label["line"], label["key"]) == (str(path), line, "label")
    assert (epochs["source"], epochs["line"]) == ("--set trainer.epochs=0", None)
    assert "at least 1" in epochs["remedy"] and told.err == ""
