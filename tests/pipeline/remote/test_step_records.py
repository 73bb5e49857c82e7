"""Records of steps on Kubeflow Pipelines, read from a real object store."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest
import yaml

from strategos.components.container import mounts, step_record
from strategos.components.errors import UserError
from strategos.pipeline import cli
from strategos.pipeline.comparing import on_kubeflow
from strategos.pipeline.config import loading
from strategos.pipeline.history import runs
from strategos.pipeline.made_from import record as made_record
from strategos.pipeline.plan.cluster import compiling, resolve
from strategos.pipeline.remote import step_records

ROOT = "minio://bucket/root"
SUMMARY = {"overall": {"auc": 0.75}, "warnings": ["few rows"]}
EXAMPLES = {"rows": 200.0, "types": "a INT", "split": {"train": 1.0, "eval": 1.0}}
MODEL = {"strategy": "one_device", "steps": 7.0, "history": '{"loss": [0.5]}'}
PUSHED = {
    "pushed": 1.0,
    "pushed_destination": "s3://models/flights/1795369694",
    "pushed_version": "1795369694",
}
# (inputs, outputs by type, warnings) of each step.
STEPS = {
    "Resolve": ([], {}, []),
    "ExampleGen": ([], {"Examples": EXAMPLES}, ["a hole"]),
    "Trainer": (["ExampleGen"], {"Model": MODEL}, []),
    "Evaluator": (
        ["Trainer", "ExampleGen"],
        {
            "ModelEvaluation": {"auc": 0.75, "examples": 20.0},
            "ModelBlessing": {"blessed": 1.0},
        },
        ["few rows"],
    ),
    "AnomalyGate": (["ExampleGen"], {}, ["anomaly: x"]),
    "Pusher": (["Trainer"], {"PushedModel": PUSHED}, []),
}


@pytest.fixture
def record(bucket, bucket_client):
    """Uploads a step's record: `record(run, node, made_by, between)`."""

    def put(run, node, made_by, between="", pipeline="flights", **more):
        inputs, outputs, warnings = STEPS[node]
        folder = f"{ROOT}/{pipeline}/{run}/{node}{between}"
        base = f"{ROOT}/{pipeline}"
        content = {
            "inputs": [f"{base}/{made_by[each]}/{each}/out" for each in inputs],
            "outputs": [
                {"type": kind, "uri": f"{folder}/{kind}", "properties": facts}
                | ({"content": SUMMARY} if kind == "ModelEvaluation" else {})
                for kind, facts in outputs.items()
            ],
            "warnings": warnings,
            **more,
        }
        key = f"{folder}/{step_record.OUTPUT}/{step_record.FILE}"
        bucket_client.put_object(
            Bucket="bucket",
            Key=key.removeprefix("minio://bucket/"),
            Body=json.dumps(content).encode(),
        )

    return put


def run_of(states, run_id="r2"):
    nodes = tuple(runs.NodeRun(*each) for each in states.items())
    return runs.Run(run_id, "flights", 0.0, 9.0, "blessed", nodes=nodes)


@pytest.mark.parametrize("between", ["", "/0c3f7a52-6d0e"])
def test_run_has_what_its_steps_and_those_behind_the_cache_recorded(record, between):
    ran = ("Evaluator", "Pusher")
    made_by = {node: "r2" if node in ran else "r1" for node in STEPS}
    del made_by["Resolve"]
    for node, run in made_by.items():
        record(run, node, made_by, between)
    record("r0", "ExampleGen", made_by)  # of another run, which nothing read
    states = {n: "complete" if by == "r2" else "cached" for n, by in made_by.items()}
    found = step_records.add_to(run_of({"Resolve": "complete", **states}), ROOT)
    assert found.metrics == SUMMARY["overall"]
    assert (found.blessed, found.summary) == (True, SUMMARY)
    assert found.pushed == (PUSHED["pushed_destination"], PUSHED["pushed_version"])
    assert (found.trainer["steps"], found.trainer["history"]) == (7, {"loss": [0.5]})
    assert found.types == "a INT"
    assert found.warnings == (("ExampleGen", "a hole"), ("Evaluator", "few rows"))
    rows = {node.name: node.rows for node in found.nodes}
    assert (rows["ExampleGen"], rows["Evaluator"], rows["Pusher"]) == (200, 20, None)


def test_run_whose_steps_recorded_nothing_stays_as_it_is(bucket):
    told = run_of({"Resolve": "complete", "Trainer": "failed"})
    assert step_records.add_to(told, ROOT) == told


def test_run_from_the_cache_alone_has_what_an_equal_run_recorded(record):
    made_by = dict.fromkeys(STEPS, "r0")
    for node in STEPS:
        record("r0", node, made_by, answer={"spans": "[1]"})
    for run, spans in (("r1", "[1, 2]"), ("r3", "[1]"), ("r4", "[3]")):
        record(run, "Resolve", made_by, answer={"spans": spans})
    record("r1", "Trainer", made_by)
    states = {node: "cached" for node in STEPS} | {"Resolve": "complete"}
    found = step_records.add_to(run_of(states, "r3"), ROOT)
    assert (found.metrics, found.blessed) == (SUMMARY["overall"], True)
    assert found.pushed == (PUSHED["pushed_destination"], PUSHED["pushed_version"])
    with pytest.raises(UserError, match="the metrics are in the table of that run"):
        step_records.add_to(run_of(states, "r4"), ROOT)


def test_runs_are_listed_by_their_records(record):
    made_by = dict.fromkeys(STEPS, "r0")
    for node in STEPS:
        record("r0", node, made_by, pipeline="own")
    time.sleep(1.1)  # the store has whole seconds
    record("r1", "Resolve", made_by, pipeline="own")
    record("r1", "Evaluator", made_by, pipeline="own")  # with the Trainer's model of r0
    last, first = step_records.history(ROOT, "own")
    assert (first.run_id, first.outcome, last.run_id) == ("r0", "blessed", "r1")
    assert (last.outcome, last.pushed) == ("unfinished", None)
    assert last.metrics == SUMMARY["overall"] and last.trainer["steps"] == 7
    assert first.started < last.started
    states = {node.name: node.state for node in last.nodes}
    assert states["Trainer"] == "cached" and states["Evaluator"] == "complete"
    assert "Pusher" not in states
    assert [run.run_id for run in step_records.history(ROOT, "own", 1)] == ["r1"]
    assert step_records.history(ROOT, "other") == []
    assert runs.chosen([last, first], "r0") == first
    with pytest.raises(UserError, match="r9: no such run; the last ones are r1, r0"):
        runs.chosen([last, first], "r9")


def test_the_commands_show_runs_that_have_been_on_kubeflow_alone(
    record, workload, capsys
):
    section = f"kubeflow: {{image: x, root: '{ROOT}'}}\n"
    workload.write_text(workload.read_text() + section)
    made_by = dict.fromkeys(STEPS, "r5")
    for node in STEPS:
        record("r5", node, made_by)
    assert cli.main(["runs", str(workload)]) == 0
    (line,) = (x for x in capsys.readouterr().out.splitlines() if "r5" in x)
    assert "blessed" in line and "0.75" in line
    assert cli.main(["runs", "show", "r5", str(workload), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["runner"] == "kubeflow" and shown["summary"] == SUMMARY
    assert shown["pushed"][0] == PUSHED["pushed_destination"]
    workload.write_text(workload.read_text().replace("name: flights", "name: other"))
    assert cli.main(["runs", str(workload)]) == 1
    assert "no runs yet" in capsys.readouterr().err


@pytest.fixture
def resolved(workload, tmp_path, monkeypatch, record, bucket_client):
    """Compiles the workload, and runs the first step of a run: `resolved(run, …)`."""
    workload.write_text(
        workload.read_text() + f"kubeflow: {{image: x, root: '{ROOT}'}}\n"
    )
    monkeypatch.setenv(mounts.VARIABLE, str(tmp_path / "mounts"))

    def run(run_id, **parameters):
        sets = ["pusher.to=s3://models/flights", f"kubeflow.context={workload.parent}"]
        config = loading.load(workload, (), sets).config
        compiling.compile_to(config, "kubeflow", tmp_path / "out")
        spec = next(yaml.safe_load_all((tmp_path / "out").read_text()))
        executors = spec["deploymentSpec"]["executors"]
        words = executors["Resolve_executor"]["container"]["args"]
        # The workload is at the same path here as in the image.
        words = [each.replace("/workload", str(workload.parent)) for each in words]
        question = json.loads(words[1]) | {"destination": ""}
        given = spec["root"]["inputDefinitions"]["parameters"]
        values = {name: each["defaultValue"] for name, each in given.items()}
        uri = f"{ROOT}/flights/{run_id}/Resolve/record"
        outputs = {"artifacts": {"record": {"artifacts": [{"uri": uri}]}}}
        call = {
            "inputs": {"parameterValues": values | parameters},
            "outputs": outputs | {"parameters": {}},
        }
        words = ["--question", json.dumps(question), "--input", json.dumps(call)]
        assert resolve.main(words) == 0
        folder = Path(mounts.Mounts().local(uri))
        made_from = json.loads((folder / step_record.FILE).read_text())["made_from"]
        for file in folder.glob("*/*"):
            key = f"{uri.removeprefix('minio://bucket/')}/{file.relative_to(folder)}"
            bucket_client.upload_file(str(file), "bucket", key)
        for node in STEPS:
            more = {"made_from": made_from} if node == "Resolve" else {}
            record(run_id, node, dict.fromkeys(STEPS, run_id), **more)

    return run


def test_two_runs_on_kubeflow_are_compared_by_what_they_were_made_from(
    resolved, workload, capsys
):
    resolved("r1")
    with workload.with_name("model.py").open("a") as file:
        file.write("# another comment\n")
    (changed, *_) = sorted(workload.parent.glob("data/span-2/*.csv"))
    lines = changed.read_text().splitlines(keepends=True)
    changed.write_text("".join([*lines, lines[-1]]))
    time.sleep(1.1)  # the store has whole seconds
    resolved("r2", epochs=7.0)
    capsys.readouterr()
    assert cli.main(["runs", "compare", str(workload), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[x]["run_id"] for x in ("before", "after")] == ["r1", "r2"]
    assert found["unknown"] == "" and found["stack"] == []
    (setting,) = found["settings"]
    assert setting["name"] == "trainer.epochs" and setting["after"] == 7
    (code,) = found["code"]
    assert (code["path"], code["state"]) == ("model.py", "changed")
    assert code["diff"][-1] == "+# another comment"
    assert [(x["path"], x["state"]) for x in found["data"]] == [
        (str(changed), "changed")
    ]
    assert {x["name"]: x["after"] for x in found["metrics"]} == SUMMARY["overall"]
    assert cli.main(["runs", "compare", "r1", "r2", str(workload)]) == 0
    shown = capsys.readouterr().out
    assert "model.py changed" in shown and "trainer.epochs" in shown
    assert "+# another comment" in shown
    assert cli.main(["runs", "compare", "r1", "r1", str(workload)]) == 2
    assert "run r1 is compared with itself" in capsys.readouterr().err


def test_each_node_of_a_run_on_kubeflow_is_explained_by_the_run_before(
    record, workload, capsys
):
    text = workload.read_text().replace("name: flights", "name: explained")
    workload.write_text(f"{text}kubeflow: {{image: x, root: '{ROOT}'}}\n")
    made_by = dict.fromkeys(STEPS, "r1")
    for node in STEPS:
        record("r1", node, made_by, pipeline="explained", parameters={"epochs": 2.0})
    time.sleep(1.1)  # the store has whole seconds
    ran = {node: "r2" for node in ("Trainer", "Evaluator", "Pusher")}
    for node in ran:
        given = {"epochs": 3.0 if node == "Trainer" else 2.0}
        record("r2", node, made_by | ran, pipeline="explained", parameters=given)
    capsys.readouterr()
    assert cli.main(["explain", "run", "r2", str(workload), "--json"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert {each["node"]: each["text"] for each in nodes} == {
        "ExampleGen": "nothing changed since run r1",
        "Trainer": "epochs 2.0 → 3.0",
        "Evaluator": "new outputs of Trainer",
        "Pusher": "new outputs of Trainer",
    }
    assert cli.main(["explain", "run", "r1", str(workload)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("ran: it had not run before") == len(STEPS) - 1
    record("r3", "Resolve", made_by, pipeline="explained")
    assert cli.main(["explain", "run", "r3", str(workload)]) == 0
    assert "no step but Resolve has left a record" in capsys.readouterr().out


def test_paths_in_the_image_are_those_of_the_context_on_this_machine(
    resolved, workload, tmp_path
):
    resolved("r1")
    kept = step_records.kept(ROOT, "flights", "r1")
    written = json.dumps(made_record.to_json(kept.made_from))
    moved = json.loads(written.replace(str(workload.parent), "/workload"))
    there = dataclasses.replace(kept, made_from=made_record.parsed(moved, "r1"))
    context = tmp_path / "elsewhere"
    here = on_kubeflow.here(there, str(context)).made_from
    assert here.yaml == str(context / "pipeline.yaml")
    assert here.settings["data"]["examples"] == f"{context}/data/span-{{SPAN}}/*.csv"
    for file, before in zip(here.data, kept.made_from.data, strict=True):
        relative = os.path.relpath(before.path, workload.parent)
        assert file == dataclasses.replace(before, path=f"{context}/{relative}")


def test_runs_compiled_by_an_earlier_version_are_compared_by_their_metrics(
    record, workload, capsys
):
    section = f"kubeflow: {{image: x, root: '{ROOT}'}}\n"
    text = workload.read_text().replace("name: flights", "name: early")
    workload.write_text(text + section)
    record("r1", "Resolve", {}, pipeline="early")
    assert cli.main(["runs", "compare", str(workload)]) == 2
    assert "there is only one run so far" in capsys.readouterr().err
    record("r2", "Resolve", {}, pipeline="early")
    assert cli.main(["runs", "compare", "r1", "r2", str(workload), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["unknown"]
    assert told.startswith("run r1: no record of its settings and code below minio://")


def test_store_that_cannot_be_read_is_named_with_the_remedy(monkeypatch):
    told = run_of({"Resolve": "complete"})
    monkeypatch.setenv("S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for remove in (False, True):
        if remove:
            monkeypatch.delenv("S3_ENDPOINT")
        with pytest.raises(UserError) as raised:
            step_records.add_to(told, ROOT)
        assert f"kubeflow.root: received {ROOT}" in str(raised.value)
        assert "S3_ENDPOINT" in str(raised.value)
