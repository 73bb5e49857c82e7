from __future__ import annotations

import json

import pytest


def test_cnn_reads_handwritten_digits(digits):
    digits.run()
    run = digits.last_run()
    assert run["outcome"] == "blessed"
    assert run["metrics"]["accuracy"] > 0.9


def test_mlp_with_one_hot_labels_through_beam(digits):
    digits.run(
        *("--runner", "beam", "--set", "trainer.hyperparameters.network=mlp"),
        *("--overlay", str(digits.folder / "onehot.yaml")),
    )
    states = digits.states()
    assert states["ExampleGen"] == "cached"
    assert states["Transform"] == "complete"
    assert digits.last_run()["metrics"]["accuracy"] > 0.85


def test_tfx_local_dag_runner_gives_the_same(digits):
    first = digits.run("--set", "trainer.seed=1")
    assert first.returncode == 0
    metrics = digits.last_run()["metrics"]
    digits.run_by_tfx(f"run.root={digits.folder / 'tfx-runs'}")
    other = digits.strategos(
        "runs", "show", "--root", str(digits.folder / "tfx-runs"), "--json"
    )
    assert json.loads(other.stdout)["metrics"] == pytest.approx(metrics, abs=1e-4)
