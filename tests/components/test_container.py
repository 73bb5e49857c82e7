"""The entry point of steps; whole runs of it are in `tests/e2e/test_flights.py`."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import pytest

from strategos.components import events
from strategos.components.container import entry, mounts, step_log, step_record
from strategos.components.shards.engine import VARIABLE, Engine

URLS = {
    "minio://mlpipeline/v2/a": "/minio/mlpipeline/v2/a",
    "s3://bucket/a b/ü": "/s3/bucket/a b/ü",
    "gs://bucket": "/gcs/bucket",
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("base", ["", "/elsewhere"])
def test_urls_become_paths_of_the_launcher_and_urls_again(url, base):
    mounted = mounts.Mounts({mounts.VARIABLE: base} if base else {})
    path = mounted.local(url)
    assert path == base + URLS[url]
    assert mounted.remote(path, mounts.scheme_of(url)) == url


@pytest.mark.parametrize("text", ["/mnt/serving/1", "https://host/x", "none", ""])
def test_other_texts_stay(text):
    mounted = mounts.Mounts({})
    assert mounted.local(text) == text
    assert mounted.remote(text, "minio") == text


def test_only_uris_of_artifacts_are_mapped():
    value = {"uri": "s3://b/x", "metadata": {"module": "s3://b/x", "n": [1, None]}}
    found = mounts.mapped([value], mounts.Mounts({}).local)
    assert found == [{**value, "uri": "/s3/b/x"}]


@pytest.mark.parametrize("scheme", ["minio", "s3", "gs"])
def test_with_an_engine_a_step_works_on_urls_that_workers_open(
    tmp_path, monkeypatch, scheme
):
    """Of the examples; other artifacts are copies."""
    url = f"{'gs' if scheme == 'gs' else 's3'}://b/run/Node"
    copy = f"{tmp_path}/{'gcs' if scheme == 'gs' else scheme}/b/run/Node"
    seen, done = {}, []

    def execute(words):
        seen.update(json.loads(words[words.index(entry._CALL) + 1]))
        seen["exchange"] = Engine.from_environment().exchange
        written = {"artifacts": seen["outputs"]["artifacts"]}
        Path(seen["outputs"]["outputFile"]).write_text(json.dumps(written))

    monkeypatch.setenv(mounts.VARIABLE, str(tmp_path))
    monkeypatch.setenv(VARIABLE, json.dumps({"runner": "portable"}))
    monkeypatch.setattr(entry, "_execute", execute)
    monkeypatch.setattr(entry.storage, "remove", done.append)
    monkeypatch.setattr(
        entry.object_stores, "check_writable", lambda uri, key: done.append(uri)
    )

    def of(name, kind=""):
        declared = {"type": {"schemaTitle": f"tfx.{kind}"}} if kind else {}
        return {"artifacts": [{"uri": f"{scheme}://b/run/Node/{name}", **declared}]}

    made = {"rows": of("rows", "Examples"), "graph": of("graph", "TransformGraph")}
    call = {
        "inputs": {"artifacts": {"x": of("x")}},
        "outputs": {"artifacts": made, "outputFile": str(tmp_path / "out")},
    }
    inputs = {"artifacts": {"x": {"artifactType": {"schemaTitle": "tfx.Examples"}}}}
    words = [entry._CALL, json.dumps(call), entry._INPUTS, json.dumps(inputs)]
    words += ["--executor_class_path", "strategos.components.x.Executor"]
    key = "kubeflow.root"
    entry._execute_on_urls(words, mounts.Mounts(), tmp_path / "events", key)
    (given,) = seen["inputs"]["artifacts"]["x"]["artifacts"]
    assert given == {"uri": f"{url}/x", "type": {"schemaTitle": "tfx.Examples"}}
    assert entry._uris(seen["outputs"]) == [f"{url}/rows", f"{copy}/graph"]
    written = json.loads((tmp_path / "out").read_text())
    assert written["artifacts"] == call["outputs"]["artifacts"]
    assert seen["exchange"] == f"{url}/.engine"
    assert done == [url, f"{url}/.engine"] and Path(copy, "graph").is_dir()


def test_problem_of_the_user_ends_a_step_without_a_traceback(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(mounts.VARIABLE, str(tmp_path))
    artifact = {"uri": "minio://b/model", "type": {"schemaTitle": "tfx.Model"}}
    model = {"model": {"artifacts": [artifact]}}
    call = {
        "inputs": {"parameterValues": {"baseline": "/gone"}},
        "outputs": {"artifacts": model, "outputFile": str(tmp_path / "out")},
    }
    inputs = {"parameters": {"baseline": {"parameterType": "STRING"}}}
    executor = "strategos.components.baseline_model.executor.Executor"
    code = entry.main(
        [
            *("kubeflow", "--executor_class_path", executor),
            *("--json_serialized_invocation_args", json.dumps(call)),
            *("--json_serialized_inputs_spec_args", json.dumps(inputs)),
        ]
    )
    assert code == 1
    printed = capsys.readouterr().err.splitlines()[-2:]
    assert printed[0].startswith("pusher.to: /gone has no SavedModel")
    assert not (tmp_path / "out").exists()


def test_a_step_on_vertex_records_what_it_read_and_made(tmp_path):
    def output(name, **kind):
        artifact = {"uri": f"{tmp_path}/{name}", "type": kind, "name": name}
        return {"artifacts": [artifact]}

    model = output("model", schemaTitle="tfx.Model")
    made = {"model": model, "record": output("record")}
    call = {
        "inputs": {"parameterValues": {"baseline": "none"}},
        "outputs": {"artifacts": made, "outputFile": str(tmp_path / "out")},
    }
    inputs = {"parameters": {"baseline": {"parameterType": "STRING"}}}
    executor = "strategos.components.baseline_model.executor.Executor"
    code = entry.main(
        [
            *("vertex", "--executor_class_path", executor),
            *("--json_serialized_invocation_args", json.dumps(call)),
            *("--json_serialized_inputs_spec_args", json.dumps(inputs)),
        ]
    )
    assert code == 0
    record = json.loads((tmp_path / "record" / step_record.FILE).read_text())
    assert record["inputs"] == record["warnings"] == []
    (found,) = record["outputs"]
    assert (found["type"], found["uri"]) == ("Model", f"{tmp_path}/model")


def test_log_of_a_step_has_its_warnings_and_its_last_progress(tmp_path, capsys):
    with step_log.opened(seconds=0.01) as file:
        events.emit("warning", message="a column\nof no value")
        events.emit("rows", rows=7)
        events.emit("progress", message="epoch 1/5  step 3/14  loss 0.5000")
        with file.open("ab") as other:  # a line that is being written
            other.write(b'{"event": "note", "time": 1.0, "message": "half')
            other.flush()
            deadline = time.monotonic() + 30
            shown = ""
            while "progress" not in shown and time.monotonic() < deadline:
                time.sleep(0.01)
                shown += capsys.readouterr().err
            other.write(b' a line"}\n')
    assert shown.splitlines()[-1] == "progress: epoch 1/5  step 3/14  loss 0.5000"
    shown += capsys.readouterr().err
    assert step_log.last_progress(shown) == "epoch 1/5  step 3/14  loss 0.5000"
    assert shown.splitlines()[0] == "warning: a column"
    assert shown.splitlines()[-1] == "note: half a line"
    assert step_log.last_progress("") == ""


def test_log_of_a_step_has_the_end_of_each_epoch(tmp_path, capsys):
    with step_log.opened(seconds=60):
        for epoch in (1, 2):
            for step in range(1, 15):
                events.emit("progress", message=f"epoch {epoch}/2  step {step}/14")
        events.emit("progress", message="evaluating and exporting")
    assert capsys.readouterr().err.splitlines() == [
        "progress: epoch 1/2  step 14/14",
        "progress: epoch 2/2  step 14/14",
        "progress: evaluating and exporting",
    ]


def test_log_of_a_step_has_no_protocol_buffers(caplog):
    from absl import logging as absl_logging

    caplog.set_level(logging.INFO)
    log = absl_logging.get_absl_logger()
    log.addFilter(entry._is_for_readers)
    log.info("Executor %s do: inputs: %s, outputs: %s", "x", "y", "z")
    log.info("rows: %s", 7)
    assert [each.getMessage() for each in caplog.records] == ["rows: 7"]
