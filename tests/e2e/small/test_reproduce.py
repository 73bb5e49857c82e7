"""Two runs are compared, and a run is made again: cause by cause, number by number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def compared(workspace, *ids):
    words = ("runs", "compare", *ids, str(workspace.yaml), "--json")
    return json.loads(workspace.strategos(*words).stdout)


def reproduced(workspace, run, name, expect=0):
    folder = workspace.folder / name
    words = ("reproduce", run, str(workspace.yaml), "--to", str(folder), "--json")
    return workspace.strategos(*words, expect=expect)


def records(workspace):
    return sorted((workspace.folder / "runs/.strategos/runs").glob("*/made_from.json"))


def edited(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.fixture(scope="module")
def first(small):
    """The first run's id."""
    small.run()
    return small.last_run()["run_id"]


def test_causes_of_a_change_are_named(small, first):
    edited(small.folder / "model.py", "import time", "import time  # changed")
    small.run("--set", "trainer.epochs=2", "--set", "data.spans=latest 1")
    found = compared(small)
    second = small.last_run()
    assert [found[x]["run_id"] for x in ("before", "after")] == [
        first,
        second["run_id"],
    ]
    changed = {x["name"]: (x["before"], x["after"]) for x in found["settings"]}
    assert changed["trainer.epochs"] == (1, 2)
    assert changed["data.spans"] == ("all", "latest 1")
    assert len(changed) == 2
    origins = json.loads(records(small)[-1].read_text())["origins"]
    line = small.yaml.read_text().splitlines().index("label: late") + 1
    assert origins["trainer.epochs"] == "--set"
    assert origins["label"] == f"pipeline.yaml:{line}"
    assert "trainer.seed" not in origins
    (code,) = found["code"]
    assert code["path"] == "model.py" and "+import time  # changed" in code["diff"]
    (data,) = found["data"]
    assert data["path"].endswith("span-1/rows.csv") and data["state"] == "removed"
    assert found["stack"] == []
    for metric in found["metrics"]:
        assert metric["after"] == second["metrics"][metric["name"]]
    assert compared(small, first) == found  # with the last one


def test_each_node_has_a_reason(small, first):
    words = ("explain", "run", str(small.yaml), "--json")
    found = json.loads(small.strategos(*words).stdout)["nodes"]
    reasons = {each["node"]: each for each in found}
    assert [each["node"] for each in found] == list(small.states())
    changed = {
        x["name"]: (x["before"], x["after"])
        for x in reasons["Trainer"].pop("parameters")
    }
    assert changed["epochs"] == (1, 2)
    assert reasons["Trainer"]["files"] == ["model.py changed"]
    assert ["transform_graph", "Transform"] in reasons["Trainer"]["inputs"]
    assert reasons["Trainer"]["compared"] == first
    (file,) = reasons["ExampleGen"]["files"]
    assert file.endswith("span-1/rows.csv removed")
    assert reasons["Transform"]["files"] == []  # its module has not changed
    assert "new outputs of ExampleGen" in reasons["Transform"]["text"]
    assert reasons["ImportSchemaGen"]["state"] == "cached"
    assert first in reasons["ImportSchemaGen"]["text"]
    words = ("explain", "run", first, str(small.yaml))
    said = small.strategos(*words).stdout
    assert said.count("ran: it had not run before") == len(found)


def test_the_verdict_of_a_run_is_explained_bound_by_bound(small, first):
    words = ("explain", "blessing", first, str(small.yaml))
    found = json.loads(small.strategos(*words, "--json").stdout)
    run = json.loads(small.strategos("runs", "show", first, "--json").stdout)
    assert found["reason"] == run["summary"]["reason"]
    assert len(found["bounds"]) == len(run["summary"]["bounds"]) > 0
    said = small.strategos(*words).stdout
    assert all(" ".join(x["text"].split()) in said for x in found["bounds"])


def test_a_model_is_made_again_bit_by_bit_from_the_code_of_its_run(small, first):
    version = small.serving()[0]
    found = json.loads(reproduced(small, version, "again").stdout)
    assert found["run"] == first and found["equal"]
    assert found["differing"] == found["assets"] == []
    assert found["weights"] > 0 < found["numbers"]
    assert found["metrics"]["before"] == found["metrics"]["after"] != {}
    (model,) = (small.folder / "again" / "workload").rglob("model.py")
    assert "# changed" not in model.read_text()
    assert not (model.parent / "serving").exists()


def test_a_warm_start_begins_again_from_the_same_weights(small, first):
    (small.folder / "data/span-3").mkdir()
    rows = (small.folder / "data/span-2/rows.csv").read_text()
    (small.folder / "data/span-3/rows.csv").write_text(rows)
    small.run("--set", "trainer.warm_start=latest")
    assert len(small.serving()) > 1
    run = small.last_run()["run_id"]
    assert json.loads(reproduced(small, run, "warm").stdout)["equal"]


def test_a_stack_that_differs_is_named_first(small, first):
    record = records(small)[0]
    text = record.read_text()
    made = json.loads(text)
    made["stack"]["packages"]["numpy"] = "1.0.7"
    made["settings"]["trainer"]["seed"] += 1  # as if the stack computed other weights
    record.write_text(json.dumps(made))
    try:
        done = reproduced(small, first, "stack", expect=1)
    finally:
        record.write_text(text)
    assert "packages.numpy: 1.0.7 →" in done.stderr
    found = json.loads(done.stdout)
    assert not found["equal"]
    assert all(x["difference"] > 0 for x in found["differing"])


def test_data_or_code_that_are_gone_are_named_before_anything_is_made(small, first):
    data = small.folder / "data/span-1/rows.csv"
    text = data.read_text()
    contents = small.folder / "runs/.strategos/content"
    try:
        edited(data, "37,1", "37,0")
        shutil.copytree(contents, small.folder / "kept")
        digest = json.loads(records(small)[0].read_text())["code"]["model.py"]
        (contents / digest).write_text("damaged")
        done = reproduced(small, first, "gone", expect=2)
    finally:
        data.write_text(text)
        shutil.rmtree(contents)
        shutil.move(small.folder / "kept", contents)
    assert f"{data}: the data file has changed since" in done.stderr
    assert "model.py: its content is no longer stored" in done.stderr
    assert not (small.folder / "gone").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "1", "2", "3"], "For two: strategos runs compare A B"),
        (["compare", "nothing"], "run nothing: no such run"),
        (["show", "1", "2"], "For one: strategos runs show 1"),
    ],
)
def test_words_that_name_no_runs_are_rejected(small, first, words, message):
    done = small.strategos("runs", *words, str(small.yaml), expect=None)
    assert done.returncode in (1, 2) and message in done.stderr


def test_a_run_is_not_compared_with_itself_or_without_a_record(small, first):
    words = ("runs", "compare", first, first, str(small.yaml))
    done = small.strategos(*words, expect=2)
    assert "is compared with itself" in done.stderr
    record = records(small)[0]
    aside = record.rename(record.with_name("aside"))
    try:
        found = compared(small, first)
        failed = reproduced(small, first, "unknown", expect=1)
    finally:
        aside.rename(record)
    assert "no record of its settings and code" in found["unknown"]
    assert found["metrics"] and found["settings"] == []
    assert "no record of its settings and code" in failed.stderr
    assert not Path(small.folder, "unknown").exists()


def test_clean_keeps_the_code_of_the_runs_that_it_keeps(small, first):
    contents = small.folder / "runs/.strategos/content"
    before = {path.name for path in contents.iterdir()}
    (contents / "0123").write_text("of a run that was removed")
    small.strategos("clean", str(small.yaml), "--older-than", "0s", "--delete")
    assert {path.name for path in contents.iterdir()} == before
