"""TFJobs whose pods are processes that share nothing but files in an object store."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from strategos.components.trainer import finished
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

GANG = {"strategy": "multi_worker_mirrored", "workers": 2}
SERVER = {"strategy": "parameter_server", "workers": 1, "parameter_servers": 1}
EPOCHS = 4


@pytest.fixture(scope="module")
def object_store(request):
    """The scheme that a test names: each path to either store is in one of them."""
    return request.param


@pytest.fixture(scope="module")
def stored(bucket_client):
    """The keys of objects that stand for no folder, below `jobs`: `stored()`."""

    def keys():
        found = bucket_client.list_objects_v2(Bucket="bucket", Prefix="jobs/")
        names = [each["Key"] for each in found.get("Contents", ())]
        return [name for name in names if not name.endswith("/")]

    return keys


def marks(folder):
    return sorted(folder.glob("paused-*"))


def weights(spec):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {n: reader.get_tensor(n) for n in sorted(names) if "VARIABLE_VALUE" in n}


def assert_same(spec, facts, other, expected):
    """Checks that two trainings came to the same, to the last digit."""
    ours, theirs = weights(spec), weights(other)
    assert ours.keys() == theirs.keys() != set()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    for what in ("history", "evaluation"):
        assert facts[what] == expected[what]
    history = [Path(each.log_dir, "history.csv").read_text() for each in (spec, other)]
    assert history[0] == history[1] and len(history[0].splitlines()) == 1 + EPOCHS


@pytest.mark.cold
@pytest.mark.faults
@pytest.mark.parametrize("object_store", ["s3"], indirect=True)
def test_killed_task_and_lost_pod_change_nothing(
    pods, launcher, training, stored, tmp_path
):
    local = training(distribution=GANG)
    expected = launch(local, Operation())
    spec = training("paused", distribution=GANG)
    started = launcher(spec).start()
    started.wait_for(lambda: len(marks(tmp_path)) == 2)
    os.kill(int(marks(tmp_path)[0].name.rpartition("-")[2]), signal.SIGKILL)
    started.wait_for(lambda: len(marks(tmp_path)) == 4)  # again, in the same pods
    pods.kill("worker-0")
    started.wait_for(lambda: len(marks(tmp_path)) == 6)  # in another job
    (tmp_path / "go").touch()
    facts = started.facts()
    assert_same(spec, facts, local, expected)
    assert (facts["workers"], facts["restarts"]) == (2, 1)
    assert "resuming at step 20" in (started.folder / "events").read_text()
    assert len(pods.processes) == 2 and stored() == []
    assert Path(spec.checkpoint_dir, finished.MARK).exists()  # until it is registered


@pytest.mark.faults
@pytest.mark.parametrize("object_store", ["gs"], indirect=True)
def test_parameter_server_that_starts_from_weights_equals_one_device(
    pods, launcher, training, stored
):
    first = training(distribution={"strategy": "one_device"})
    launch(first, Operation())
    start = f"{first.model_dir}/Format-Weights"
    local = training(distribution={"strategy": "one_device"}, warm_start=start)
    expected = launch(local, Operation())
    spec = training(distribution=SERVER, warm_start=start)
    facts = launcher(spec).start().facts()
    assert_same(spec, facts, local, expected)
    assert (facts["strategy"], facts["workers"]) == ("parameter_server", 1)
    assert stored() == []
