"""Runs from Python: `strategos.run` in a thread, and in a notebook's kernel."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

import pytest

import strategos
from strategos.components import processes
from strategos.pipeline.report.notebook import VEGA_LITE

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebook"


@pytest.fixture(autouse=True)
def warm_runs(monkeypatch, warm_tfx):
    monkeypatch.setattr(processes, "start", warm_tfx.start)


def state_of_this_process():
    handlers = [signal.getsignal(each) for each in signal.valid_signals()]
    streams = (sys.stdout, sys.stderr, sys.unraisablehook, list(sys.meta_path))
    return handlers, streams, dict(os.environ), os.getcwd()


def test_a_run_beside_an_event_loop_returns_its_record(small):
    events, before = [], state_of_this_process()

    async def main():
        return await asyncio.to_thread(
            strategos.run, small.yaml, on_event=events.append
        )

    result = asyncio.run(main())
    assert state_of_this_process() == before
    assert (result.exit_code, result.error) == (strategos.ExitCode.DONE, None)
    shown = small.last_run()
    assert (
        json.loads(json.dumps(dataclasses.asdict(result.run))).items() <= shown.items()
    )
    assert result.run.pushed[1] == small.serving()[-1]
    kinds = [event.kind for event in events]
    assert (kinds.count("run_started"), kinds[-1]) == (1, "run_finished")
    ended = [event.node for event in events if event.kind == "node_finished"]
    assert ended == [node.name for node in result.run.nodes]
    epochs = [event.details for event in events if event.kind == "epoch"]
    assert [each["epoch"] for each in epochs] == list(range(1, len(epochs) + 1))
    for name, values in result.run.trainer["history"].items():
        assert [each["values"][name] for each in epochs] == values
    assert result.run.run_id in report_of(result.run).read_text()


def report_of(run):
    return Path(run.log).with_name("report.html")


def test_a_model_that_is_not_blessed_is_a_result(small):
    bounds = {"evaluator.bounds": {"auc": {"at_least": 0.99}}}
    result = strategos.run(small.yaml, sets=bounds | {"run.report": False})
    assert not report_of(result.run).exists()
    assert result.exit_code == strategos.ExitCode.STOPPED
    assert result.run.outcome == "not blessed"
    assert isinstance(result.error, strategos.GateStoppedError)
    newest, *_ = strategos.history(small.yaml, details=True)
    assert newest == result.run


def test_an_exception_of_a_callback_ends_the_run(small):
    def fail(event):
        if event.kind == "node_started" and event.node == "Trainer":
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        strategos.run(small.yaml, sets={"trainer.epochs": 50}, on_event=fail)
    newest, *_ = strategos.history(small.yaml)
    assert newest.outcome == "interrupted"
    small.wait_until_nothing_is_left()


@pytest.mark.long
def test_the_notebook_runs(copy_example, tmp_path, monkeypatch, warm_tfx):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    workspace = copy_example("digits", tmp_path)
    kernel = tmp_path / "jupyter" / "kernels" / "warm" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [*warm_tfx.kernel(), "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "display_name": "warm"}))
    for name in ("JUPYTER_PATH", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    notebook = nbformat.read(NOTEBOOKS / "digits.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    folder = {"metadata": {"path": str(workspace.folder)}}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="warm", resources=folder
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert "'blessed'" in str(outputs)
    forms = [form for out in outputs for form in out.get("data", {}).items()]
    tables = "".join(text for kind, text in forms if kind == "text/html")
    for text in ("trainer.module", ">Table: loss by epoch<", "<caption>Runs"):
        assert text in tables
    charts = [spec for kind, spec in forms if kind == VEGA_LITE]
    losses = [c["data"]["values"] for c in charts if c["title"] == "loss by epoch"]
    assert [len(values) for values in losses] == [8]  # four epochs of two splits
    assert len(workspace.serving()) == 1
