"""`strategos run` on digits under every strategy that needs neither GPU nor TPU."""

from __future__ import annotations

import numpy as np
import pytest

KEY = "trainer.distribution"
SYNCHRONOUS = {
    "mirrored": [f"{KEY}.strategy=mirrored", f"{KEY}.devices=2"],
    "central_storage": [f"{KEY}.strategy=central_storage", f"{KEY}.devices=2"],
    "multi_worker_mirrored": [f"{KEY}.strategy=multi_worker_mirrored"],
}
EPOCHS = 4


def _trained(digits, sets, *arguments):
    """What the history says of a run up to the Trainer under these settings."""
    sets = [*sets, f"trainer.epochs={EPOCHS}"]
    words = [word for setting in sets for word in ("--set", setting)]
    digits.run("--to", "Trainer", *words, *arguments)
    return digits.last_run()["trainer"]


@pytest.fixture(scope="module")
def one_device(digits):
    return _trained(digits, [f"{KEY}.strategy=one_device"])


def _assert_same_curve(found, expected):
    assert set(found["history"]) == set(expected["history"])
    for metric, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][metric], values, atol=1e-5)


@pytest.mark.parametrize(
    "strategy",
    [
        # As components/trainer/loop/test_strategies.py, and the own loop below.
        pytest.param("mirrored", marks=pytest.mark.matrix),
        pytest.param("central_storage", marks=pytest.mark.matrix),
        pytest.param("multi_worker_mirrored", marks=pytest.mark.long),
    ],
)
def test_two_replicas_give_the_loss_curve_of_one_device(digits, one_device, strategy):
    found = _trained(digits, SYNCHRONOUS[strategy])
    assert (found["strategy"], found["replicas"]) == (strategy, 2)
    assert found["steps"] == one_device["steps"]
    _assert_same_curve(found, one_device)
    for metric, value in one_device["evaluation"].items():
        assert found["evaluation"][metric] == pytest.approx(value, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sets", "replicas"),
    [
        (SYNCHRONOUS["mirrored"], 2),
        ([f"{KEY}.strategy=parameter_server", f"{KEY}.workers=1"], 1),
    ],
    ids=["mirrored", "parameter_server"],
)
def test_a_loop_of_ones_own_gives_the_same_curve(digits, one_device, sets, replicas):
    overlay = ("--overlay", str(digits.folder / "custom_loop.yaml"))
    found = _trained(digits, sets, *overlay)
    assert found["replicas"] == replicas
    for metric, values in found["history"].items():
        expected = one_device["history"][metric]
        np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.long
def test_parameter_servers_train_to_the_accuracy_of_one_device(digits, one_device):
    found = _trained(digits, [f"{KEY}.strategy=parameter_server"])
    assert (found["strategy"], found["workers"]) == ("parameter_server", 2)
    expected = one_device["evaluation"]["accuracy"]
    assert found["evaluation"]["accuracy"] >= expected - 0.05
