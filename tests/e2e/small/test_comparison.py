"""`trainer.compare_fresh`: the better of warm start and fresh weights goes on."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

pytestmark = pytest.mark.faults

SETTINGS = """
trainer: {module: model, batch_size: 64, epochs: 1, warm_start: latest,
  compare_fresh: true, checkpoint: {every: 1 steps}}
evaluator: {task: binary, metrics: [log_loss, auc]}
"""


@pytest.fixture(scope="module")
def small(make_small, tmp_path_factory):
    """The small workload, whose first model has learnt that all labels are flipped."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    lines = made.yaml.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if line.startswith("trainer:"))
    end = next(n for n, line in enumerate(lines) if line.startswith("pusher:"))
    made.yaml.write_text("".join([*lines[:start], SETTINGS, *lines[end:]]))
    shutil.rmtree(made.folder / "data")
    write_span(made, 1, flipped=True)
    retrain(made, "--set", "trainer.epochs=30")
    return made


def write_span(workspace, span, flipped=False):
    rows = ((n * 37 + span) % 101 for n in range(200))
    lines = (f"{x},{int((x > 50) != flipped)}" for x in rows)
    file = workspace.folder / "data" / f"span-{span}" / "rows.csv"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["x,late", *lines]) + "\n")


def retrain(workspace, *words):
    return workspace.strategos(
        "retrain", str(workspace.yaml), *words, "--set", "data.spans=latest 1"
    ).stdout


def weights(folder):
    return (folder / "variables" / "variables.data-00000-of-00001").read_bytes()


def served(workspace):
    return weights(workspace.folder / "serving" / "small" / workspace.serving()[-1])


def test_the_better_of_two_candidates_goes_on(small):
    write_span(small, 2)
    said = retrain(small, "--if-due")
    assert ". From scratch goes on." in said
    models = (small.folder / "runs" / "small" / "Trainer" / "model").iterdir()
    newest = sorted(models, key=lambda path: int(path.name))[-2:]
    warm, fresh = (weights(path / "Format-Serving") for path in newest)
    assert served(small) == fresh != warm
    run = small.last_run()
    assert run["outcome"] == "blessed" and "From scratch goes on." in run["reason"]
    assert small.states()["Trainer"] == small.states()["Evaluator"] == "cached"
    figure = f"from scratch: log_loss {run['metrics']['log_loss']:.4f}. From"
    assert figure in run["reason"]
    assert retrain(small, "--if-due").startswith("Not due: ")


def test_a_killed_comparison_ends_as_an_undisturbed_one(small):
    write_span(small, 3)
    kept = small.folder.with_name("kept")
    shutil.copytree(small.folder, kept, symlinks=True)
    assert ". Warm start goes on." in retrain(small)
    expected = served(small)
    reason = small.last_run()["reason"]
    shutil.rmtree(small.folder)
    shutil.copytree(kept, small.folder, symlinks=True)
    before = len(run_folders(small))
    with small.held("Trainer"):
        words = ("--if-due", "--set", "data.spans=latest 1")
        process = small.start(*words, node="Trainer", command="retrain")
        small.wait_for(lambda: len(run_folders(small)) == before + 2, seconds=300)
        log = run_folders(small)[-1] / "events.jsonl"
        small.wait_for(lambda: "step 2" in log.read_text(), seconds=300)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    said = retrain(small, "--if-due", "--set", "schedule.retry_after=1s")
    assert ". Warm start goes on." in said
    assert served(small) == expected
    assert small.last_run()["reason"].partition("Compared")[2] in reason


def run_folders(workspace):
    return sorted((workspace.folder / "runs" / ".strategos" / "runs").iterdir())
