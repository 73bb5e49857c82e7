"""The page that a run of a compiled pipeline leaves, from what its steps recorded."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from strategos.components.container import mounts, step_record
from strategos.pipeline.config import loading
from strategos.pipeline.plan.cluster import compiling, recording
from strategos.pipeline.remote import report_step

ROOT = "minio://bucket/root/flights/run-7"
KUBEFLOW = """
kubeflow: {image: "registry.example.com/flights:1", root: "minio://bucket/root"}
notify: {command: [./secret.sh]}
"""
CHECK = {
    **{"metric": "auc", "slice": "overall", "bound": "at_least", "examples": 20},
    **{"required": 0.8, "received": 0.75, "ok": False, "note": None},
}
SUMMARY = {
    **{"task": "binary", "label": "late", "examples": 20, "slices": []},
    **{"overall": {"auc": 0.75}, "baseline": None, "bounds": [CHECK]},
    **{"blessed": False, "reason": "auc <b>: at least 0.8 required", "warnings": []},
}
OUTPUTS = {
    "ExampleGen": [("Examples", {"rows": 200.0, "rows_train": 180.0}, None)],
    "Trainer": [
        (
            "Model",
            {
                "strategy": "one_device",
                "reason": "no GPU",
                "history": '{"loss": [0.5]}',
            },
            None,
        )
    ],
    "Evaluator": [
        ("ModelEvaluation", {"auc": 0.75, "examples": 20.0}, SUMMARY),
        ("ModelBlessing", {"blessed": 0.0}, None),
    ],
}


@pytest.fixture
def step(workload, tmp_path, monkeypatch):
    """Runs the step of a compiled workload in a container; the page."""
    monkeypatch.setenv(mounts.VARIABLE, str(tmp_path / "mounts"))
    workload.with_name("cluster.yaml").write_text(KUBEFLOW)
    overlays = [str(workload.with_name("cluster.yaml"))]
    sets = ["pusher.to=s3://bucket/serving", "trainer.epochs=3"]
    config = loading.load(workload, overlays, sets).config
    compiling.compile_to(config, "kubeflow", tmp_path / "out")
    spec = next(yaml.safe_load_all((tmp_path / "out").read_text()))
    executors = spec["deploymentSpec"]["executors"]

    def run(outputs=OUTPUTS, name="RunReport", **parameters):
        task = spec["root"]["dag"]["tasks"][name]
        container = executors[f"{name}_executor"]["container"]
        inputs = {}
        for name, source in task["inputs"]["artifacts"].items():
            made = source["taskOutputArtifact"]
            node, key = made["producerTask"], made["outputArtifactKey"]
            uri = f"{ROOT}/{node}/{key}"
            inputs[name] = {"artifacts": [{"uri": uri}]}
            if key == step_record.OUTPUT:
                _put(mounts.Mounts().local(uri), node, outputs.get(node, []))
        output = {"artifacts": [{"uri": f"{ROOT}/{name}/report"}]}
        question = json.loads(executors["Resolve_executor"]["container"]["args"][1])
        made = recording.of_run(question["made_from"], parameters)
        values = {"settings": recording.settings(made)}
        call = {
            "inputs": {"artifacts": inputs, "parameterValues": values},
            "outputs": {"artifacts": {"report": output}},
        }
        words = [each.replace("{{$}}", json.dumps(call)) for each in container["args"]]
        assert report_step.main(words) == 0
        run_7 = tmp_path / "mounts/minio/bucket/root/flights/run-7"
        return (run_7 / name / "report").read_text()

    return run


def _put(folder, node, outputs):
    record = {
        "inputs": [],
        "outputs": [
            {"type": kind, "uri": f"{ROOT}/{node}/{kind}", "properties": facts}
            | ({"content": content} if content else {})
            for kind, facts, content in outputs
        ],
        "warnings": [f"a warning of {node}"] if outputs else [],
    }
    path = report_step.Path(folder, step_record.FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def _text(page):
    """The page without tags, in one line."""
    body = page[page.index("<body") :].partition("<script")[0]
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body))


def test_the_page_has_what_the_steps_recorded(step):
    page = step()
    text = _text(page)
    assert "Run run-7" in text and "not blessed" in text
    assert "auc &lt;b&gt;: at least 0.8 required" in text
    assert "a warning of Trainer" in text and "no GPU" in text
    assert re.search(r"trainer\.epochs 3 --set", text)
    assert re.search(
        r"trainer\.epochs 9 a parameter of the run", _text(step(epochs=9.0))
    )
    assert "secret.sh" not in page
    headings = re.findall("<h2[^>]*>(.*?)<", page)
    assert headings == [
        *("Verdict", "Metrics and bounds", "Training", "Data", "Graph"),
        *("Settings", "Environment", "Warnings"),
    ]


def test_a_report_that_cannot_be_drawn_is_a_page_that_says_why(step):
    wrong = {**OUTPUTS, "Evaluator": [("ModelEvaluation", {}, {"blessed": "<b>"})]}
    page = step(wrong)
    assert "the report cannot be drawn: " in page and "<b>" not in page


def pushed(folder):
    facts = {"pushed": 1.0, "pushed_destination": f"{folder}/3", "pushed_version": "3"}
    return {**OUTPUTS, "Pusher": [("PushedModel", facts, None)]}


def test_the_report_is_beside_the_pushed_model_without_values_of_the_data(
    step, tmp_path
):
    (tmp_path / "serving" / "3").mkdir(parents=True)
    (tmp_path / "serving" / "3" / "saved_model.pb").touch()
    page = step(pushed(tmp_path / "serving"), "ModelReport")
    assert f"{tmp_path}/serving/3" in page
    beside = tmp_path / "serving" / "reports" / "3.html"
    text = beside.read_text()
    assert "Run run-7" in _text(text) and "Values of the data are left out" in text
    assert "a warning of Trainer" in page and "a warning of Trainer" not in text
    beside.write_text("that of the run that pushed")
    step(pushed(tmp_path / "serving"), "ModelReport")
    assert beside.read_text() == "that of the run that pushed"


def test_without_a_push_there_is_nothing_to_write_beside(step, tmp_path):
    withdrawn = {**OUTPUTS, "Pusher": [("PushedModel", {"pushed": 0.0}, None)]}
    assert "Run run-7" in step(withdrawn, "ModelReport")
    assert not list(tmp_path.rglob("reports"))


def test_a_folder_that_cannot_be_written_fails_no_step(step, tmp_path, capsys):
    (tmp_path / "serving" / "3").mkdir(parents=True)
    (tmp_path / "serving" / "3" / "saved_model.pb").touch()
    (tmp_path / "serving" / "reports").touch()  # a file in place of the folder
    assert "Run run-7" in step(pushed(tmp_path / "serving"), "ModelReport")
    told = capsys.readouterr().err
    assert told.startswith("no report beside the pushed model: ")
    assert f"{tmp_path}/serving" in told and "Traceback" not in told


def test_without_reports_the_pipeline_has_no_such_step(workload, tmp_path):
    workload.with_name("cluster.yaml").write_text(KUBEFLOW)
    overlays = [str(workload.with_name("cluster.yaml"))]
    sets = ["pusher.to=s3://bucket/serving", "run.report=false"]
    config = loading.load(workload, overlays, sets).config
    compiling.compile_to(config, "kubeflow", tmp_path / "out")
    assert "RunReport" not in (tmp_path / "out").read_text()
