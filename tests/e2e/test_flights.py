"""One workspace through the life of a pipeline; the tests build on each other."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess

import pytest
import yaml

pytestmark = pytest.mark.long

DATA_NODES = ("ExampleGen", "StatisticsGen", "ImportSchemaGen", "ExampleValidator")
MODEL_NODES = ("Trainer", "Evaluator", "InfraValidator", "Pusher")


@pytest.mark.cold
def test_first_run_is_blessed_pushed_and_told(flights):
    done = flights.run(warm=False)
    run = flights.last_run()
    assert run["outcome"] == "blessed"
    assert set(flights.states().values()) == {"complete"}
    assert 0.5 < run["metrics"]["auc"] < 1
    assert run["trainer"]["strategy"] == "one_device"
    (version,) = flights.serving()
    assert version in done.stdout
    assert "strategos predict" in done.stdout
    for node in (*DATA_NODES, *MODEL_NODES):
        assert node in done.stdout
    rows = {node["name"]: node["rows"] for node in run["nodes"]}
    assert rows["ExampleGen"] == flights.rows


def test_unchanged_run_takes_everything_from_the_cache(flights):
    flights.run()
    assert set(flights.states().values()) == {"cached"}
    assert len(flights.serving()) == 1


@pytest.mark.cold
def test_other_bounds_are_judged_without_compiling_and_scoring(flights):
    scored = flights.last_run("--slices")
    words = ("run", str(flights.yaml), *flights.sets())
    done = subprocess.run(
        flights.command(*words, "--set", "evaluator.bounds.auc.at_least=0.3"),
        env=flights.cold_environment() | {"PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout
    assert "no row is scored again" in done.stderr
    assert "compiling" not in done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "tensorflow.core.protobuf" in imported
    assert not imported & {"tensorflow.python.eager", "apache_beam.options"}
    log = newest_run(flights) / "log.txt"
    assert "==== Pusher ====" in log.read_text()
    assert "import time:" not in log.read_text()  # no executor process wrote there
    run, states = flights.last_run("--slices"), flights.states()
    assert {name for name, state in states.items() if state != "cached"} == {
        *("Evaluator", "EvaluationGate", "Pusher")
    }
    assert received(run) == received(scored)
    assert 0.3 in [check["required"] for check in run["summary"]["bounds"]]
    earlier, later = evaluations(flights)[-2:]
    assert later.read_bytes() == earlier.read_bytes()
    assert len(flights.serving()) == 1


def test_rows_are_scored_again_if_the_kept_sums_are_damaged(flights):
    judged = flights.last_run("--slices")
    (kept,) = flights.folder.glob("runs/.strategos/evaluation-sums/*")
    kept.write_bytes(kept.read_bytes()[:-1])
    words = ("--set", "evaluator.bounds.auc.at_least=0.2", "--to", "Evaluator")
    done = flights.run(*words, warm=False)  # as the first run: the same kernels
    assert "no row is scored again" not in done.stderr
    run = flights.last_run("--slices")
    assert received(run) == received(judged)
    assert 0.2 in [check["required"] for check in run["summary"]["bounds"]]
    earlier, later = evaluations(flights)[-2:]
    assert later.read_bytes() == earlier.read_bytes()


def received(run):
    """What the summary of an evaluation says, except for the bounds."""
    summary = dict(run["summary"])
    values = [(x["metric"], x["slice"], x["received"]) for x in summary.pop("bounds")]
    return summary, values


def evaluations(flights):
    """TFMA's files of metrics, oldest first."""
    files = flights.folder.glob("runs/**/evaluation/*/metrics-*.tfrecord")
    return sorted(files, key=lambda path: int(path.parent.name))


def newest_run(flights):
    return max((flights.folder / "runs/.strategos/runs").iterdir())


def test_pushed_model_answers_plain_rows(flights):
    first = next(flights.folder.glob("data/span-*/flights.csv"))
    rows = flights.folder / "rows.csv"
    rows.write_text("\n".join(first.read_text().splitlines()[:4]))
    done = flights.strategos("predict", str(flights.yaml), str(rows), "--json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 3
    for answer in answers:
        assert json.dumps(answer).count("predictions") > 0
    assert "null_values" not in done.stderr  # the model names them


def test_lineage_leads_from_the_pushed_version_to_the_data(flights):
    (version,) = flights.serving()
    shown = flights.strategos("lineage", version, str(flights.yaml)).stdout
    for part in ("ExampleGen", "ImportSchemaGen", "hyperparameters", "one_device"):
        assert part in shown
    found = flights.strategos("lineage", version, str(flights.yaml), "--json").stdout
    for part in ("span-12/flights.csv", "flights.pbtxt", "fingerprint", version):
        assert part in found


def test_parameter_is_changed_without_compiling_anew(flights):
    compiled = flights.folder / "runs" / ".strategos" / "ir"
    before = sorted(compiled.iterdir())
    flights.run("--set", "trainer.epochs=1", "--to", "Trainer")
    states = flights.states()
    assert sorted(compiled.iterdir()) == before
    assert {states[node] for node in DATA_NODES} == {"cached"}
    assert states["Transform"] == "cached"
    assert states["Trainer"] == "complete"
    assert len(flights.last_run()["trainer"]["history"]["loss"]) == 1


def test_changed_model_code_re_runs_what_depends_on_it_and_compiles_nothing(flights):
    compiled = flights.folder / "runs" / ".strategos" / "ir"
    before = sorted(compiled.iterdir())
    with (flights.folder / "model.py").open("a") as model:
        model.write("\n# another comment\n")
    flights.run()
    states = flights.states()
    assert {states[node] for node in DATA_NODES} == {"cached"}
    assert states["Transform"] == "cached"
    assert {states[node] for node in MODEL_NODES} == {"complete"}
    assert flights.last_run()["summary"]["baseline"] is not None
    assert sorted(compiled.iterdir()) == before


def test_compiled_pipeline_pushes_the_same_model(flights, kfp_launcher, tmp_path):
    flights.run()
    checkout, mounted = flights.folder.parents[1], tmp_path / "mounted"
    section = {
        "image": "registry.example.com/flights:1",
        "context": str(checkout),
        "volumes": [{"claim": "serving", "path": str(mounted)}],
    }
    overlay, file = tmp_path / "cluster.yaml", tmp_path / "pipeline.yaml"
    overlay.write_text(
        json.dumps(
            {
                "kubeflow": section,
                "pusher": {"to": str(mounted)},
                "trainer": {"warm_start": "latest"},
                "gates": {"missing": 0.9},
            }
        )
    )
    words = ("--target", "kubeflow", "--overlay", str(overlay), "-o", str(file))
    flights.strategos("compile", str(flights.yaml), *flights.sets(), *words)
    spec = next(yaml.safe_load_all(file.read_text()))
    launcher = kfp_launcher(spec, tmp_path / "cluster", flights.warm, checkout)
    launcher.run()
    there = json.loads(
        (launcher.files("Evaluator", "evaluation") / "summary.json").read_text()
    )
    here = flights.last_run("--slices")
    assert there["overall"] == here["metrics"]
    found, wanted = there["slices"], here["summary"]["slices"]
    assert [s["metrics"] for s in found] == [s["metrics"] for s in wanted]
    (version,) = mounted.glob("[0-9]*")
    assert (version / "saved_model.pb").is_file()
    pushed = launcher.artifacts["Pusher", "pushed_model"]["metadata"]
    assert pushed["pushed_destination"] == str(version)
    assert pushed["candidate"] == launcher.outputs["Resolve", "candidate"]
    about = json.loads((version / "assets.extra" / "manifest.json").read_text())
    assert about["metrics"] == here["metrics"]
    assert about["fingerprint"] == pushed["candidate"]
    checks = launcher.files("SpanValidator", "anomalies") / "checks.json"
    assert {each["span"] for each in json.loads(checks.read_text())["checks"]} == {12}

    page = launcher.files("RunReport", "report").read_text()
    local = flights.folder / "report.html"
    flights.strategos("report", str(flights.yaml), "--output", str(local))
    for text in (page, local.read_text()):
        headings = re.findall("<h2[^>]*>(.*?)<", text)
        assert {*headings} >= {
            *("Verdict", "Metrics and bounds", "Answers", "Slices"),
            *("Training", "Data", "Settings", "Environment"),
        }
        assert all(f"{each:.4f}" in text for each in there["overall"].values())
    beside = (mounted / "reports" / f"{version.name}.html").read_text()
    assert str(version) in beside and "Values of the data are left out" in beside

    first = launcher.artifacts["Trainer", "model"]["metadata"]
    assert first["warm_start"] == "none"
    launcher.run("Resolve", "Trainer", epochs=1)
    weights = launcher.outputs["Resolve", "warm_start"]
    assert weights == f"{version}/assets.extra/weights"
    again = launcher.artifacts["Trainer", "model"]["metadata"]
    assert again["warm_start"] == weights
    losses = [json.loads(facts["history"])["loss"] for facts in (first, again)]
    assert losses[1][0] < losses[0][0]


def test_model_below_its_bound_is_not_blessed_and_the_old_one_serves(flights):
    before = flights.serving()
    done = flights.run("--set", "evaluator.bounds.auc.at_least=0.999", expect=3)
    assert "0.999" in done.stdout
    assert "not blessed" in done.stdout
    assert flights.last_run()["outcome"] == "not blessed"
    assert flights.serving() == before


def test_bad_row_fails_by_file_row_and_column_and_the_old_model_serves(flights):
    before = flights.serving()
    broken = flights.folder / "data" / "span-03" / "flights.csv"
    lines = broken.read_text().splitlines()
    column = lines[0].split(",").index('"hour"')
    cells = lines[5].split(",")
    cells[column] = "noon"
    good = broken.read_text()
    broken.write_text("\n".join([*lines[:5], ",".join(cells), *lines[6:]]))
    done = flights.run(expect=1)
    said = done.stdout + done.stderr
    for part in ("ExampleGen", "span-03", "hour", "noon", "log.txt"):
        assert part in said
    assert flights.serving() == before
    broken.write_text(good)


def test_anomaly_stops_the_run_before_training(flights):
    changed = flights.folder / "data" / "span-04" / "flights.csv"
    good = changed.read_text()
    changed.write_text(good.replace('"EWR"', '"XXX"'))
    done = flights.run(expect=3)
    said = done.stdout + done.stderr
    assert "AnomalyGate" in said
    assert "origin" in said
    assert "Transform" not in flights.states()
    assert flights.last_run()["outcome"] == "stopped"
    changed.write_text(good)


def test_history_lists_every_run_with_its_outcome(flights):
    listed = json.loads(flights.strategos("runs", str(flights.yaml), "--json").stdout)
    outcomes = [run["outcome"] for run in listed]
    assert outcomes[0] == "stopped"
    assert outcomes.count("blessed") == 5
    assert {"failed", "not blessed"} <= set(outcomes)
    shown = flights.strategos("runs", str(flights.yaml)).stdout
    assert "not blessed" in shown


def test_partial_run_stops_after_the_named_node(flights):
    flights.run("--to", "Transform")
    assert list(flights.states())[-1] == "Transform"
    refused = flights.run("--from", "Evaluator", expect=1)
    assert "No previous successful executions found for node_id Trainer" in (
        refused.stderr
    )
    assert "Run without --from, or from an earlier node" in refused.stdout
    assert "LookupError" not in refused.stdout + refused.stderr
    done = flights.run("--from", "Nowhere", expect=2)
    assert "Nowhere" in done.stderr
    assert "Transform" in done.stderr


def test_version_that_was_deleted_is_pushed_again(flights):
    import shutil

    flights.run()
    newest = flights.serving()[-1]
    shutil.rmtree(next((flights.folder / "serving").iterdir()) / newest)
    flights.run()
    assert flights.serving()[-1] > newest


def test_corrupt_metadata_is_named(flights):
    database = flights.folder / "runs" / "metadata.sqlite"
    saved = database.read_bytes()
    with pytest.raises(sqlite3.DatabaseError):
        database.write_bytes(b"not a database" * 100)
        sqlite3.connect(database).execute("select 1 from Type")
    done = flights.run(expect=2)
    assert "metadata.sqlite" in done.stderr
    database.write_bytes(saved)
