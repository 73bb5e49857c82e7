"""Images through the whole pipeline: two networks, and weights to start from."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.long

LATEST = ("--set", "trainer.warm_start=latest")


def test_cnn_reads_handwritten_digits(digits):
    assert "starts from fresh weights" in digits.run(*LATEST).stderr
    run = digits.last_run()
    assert run["outcome"] == "blessed"
    assert run["metrics"]["accuracy"] > 0.9
    assert run["trainer"]["warm_start"] == "none"
    digits.run(*LATEST)
    assert set(digits.states().values()) == {"cached"}  # it would start from itself


def test_training_starts_from_the_newest_pushed_model_where_there_is_one(digits):
    first = digits.last_run()["trainer"]
    another = ("--set", "trainer.seed=2", "--set", "trainer.epochs=1")
    digits.run(*LATEST, *another)
    second = digits.last_run()["trainer"]
    assert second["warm_start"].endswith("/Format-Weights")
    assert second["history"]["loss"][0] < 0.75 * first["history"]["loss"][0]
    digits.run(*LATEST, *another)
    assert set(digits.states().values()) == {"cached"}


def test_mlp_with_one_hot_labels_through_beam(digits):
    digits.run(
        *("--runner", "beam", "--set", "trainer.hyperparameters.network=mlp"),
        *("--overlay", str(digits.folder / "onehot.yaml")),
    )
    assert digits.states()["Transform"] == "complete"
    assert digits.last_run()["metrics"]["accuracy"] > 0.85
