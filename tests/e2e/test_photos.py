"""Transfer learning through the whole pipeline: a ResNet50 in two phases."""

from __future__ import annotations

import pytest


@pytest.mark.matrix
def test_resnet_trains_its_head_and_then_its_last_block(copy_example, tmp_path):
    photos = copy_example("photos", tmp_path)
    photos.run()
    run = photos.last_run()
    assert run["outcome"] == "blessed"
    assert [each["name"] for each in run["trainer"]["phases"]] == ["head", "tune"]
    assert len(run["trainer"]["history"]["loss"]) == 5
    assert run["metrics"]["accuracy"] > 0.8
