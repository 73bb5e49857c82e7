"""Artifacts in an object store, metadata on a database server, models pushed here."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

pytestmark = pytest.mark.long


@pytest.fixture(
    scope="module", params=["s3", pytest.param("gs", marks=pytest.mark.faults)]
)
def object_store(request):
    return request.param


@pytest.fixture(scope="module")
def mariadb(object_store, mariadb):
    """A database for each store: what one has trained would be in the other's cache."""
    return mariadb if object_store == "s3" else f"{mariadb}_{object_store}"


@pytest.fixture(scope="module")
def remote(bucket, mariadb, metadata_password, make_small, tmp_path_factory):
    """The small workspace with a remote root."""
    small = make_small(tmp_path_factory.mktemp("checkout"))
    with small.yaml.open("a") as file:
        file.write(f"run: {{root: {bucket}/small, metadata: '{mariadb}'}}\n")
    return small


def test_run_on_a_remote_root_is_blessed_and_pushed(remote):
    remote.run()
    (version,) = remote.serving()
    done = remote.last_run()
    assert done["outcome"] == "blessed"
    assert done["pushed"] == [f"{remote.folder}/serving/small/{version}", version]
    assert 0 < done["metrics"]["auc"] < 1
    rows = {node["name"]: node["rows"] for node in done["nodes"]}
    assert rows["ExampleGen"] > rows["Evaluator"] > 0
    assert not (remote.folder / "runs").exists()
    shown = remote.strategos("lineage", version, str(remote.yaml)).stdout
    assert "data/span-1" in shown


def test_values_are_those_of_a_local_root(remote, make_small, tmp_path):
    local = make_small(tmp_path)
    local.run()
    metrics = remote.last_run()["metrics"]  # MySQL keeps six digits
    assert local.last_run()["metrics"] == pytest.approx(metrics, abs=1e-6)
    assert _variables(local) == _variables(remote)


def _variables(workspace):
    """The content of the files with the weights of the model that was pushed last."""
    version = workspace.folder / "serving" / "small" / workspace.serving()[-1]
    return [path.read_bytes() for path in sorted(version.glob("variables/*"))]


def test_unchanged_run_is_cached_as_a_whole(remote):
    remote.run()
    assert set(remote.states().values()) == {"cached"}
    listed = json.loads(remote.strategos("runs", str(remote.yaml), "--json").stdout)
    assert [run["outcome"] for run in listed] == ["blessed", "blessed"]


def test_model_that_is_lost_is_pushed_again_by_the_beam_runner(remote):
    shutil.rmtree(remote.folder / "serving")
    remote.run("--runner", "beam")
    states = remote.states()
    assert states.pop("Pusher") == "complete"
    assert set(states.values()) == {"cached"}
    assert len(remote.serving()) == 1


def test_interrupted_run_goes_on_and_a_gate_stops_it(remote):
    with remote.held("Trainer"):
        process = remote.start("--set", "trainer.epochs=3", node="Trainer")
        assert remote.end(process, signal.SIGINT) == 130
        remote.wait_until_nothing_is_left()
    done = remote.last_run()
    assert (done["outcome"], done["failed_node"]) == ("interrupted", "Trainer")
    strict = "evaluator.bounds.auc={at_least: 0.99, may_drop: 1.0}"
    board = "trainer.callbacks.tensorboard=true"
    sets = ("--set", strict, "--set", board)
    stopped = remote.run("--set", "trainer.epochs=3", *sets, expect=3)
    assert "auc" in stopped.stdout + stopped.stderr
    states = remote.states()
    assert (states["Transform"], states["BaselineModel"]) == ("cached", "complete")
    assert states["EvaluationGate"] == "stopped"
    assert len(remote.serving()) == 1


@pytest.fixture
def checkpoints(bucket_client):
    """Returns the keys of the files of checkpoints in the bucket."""

    def keys():
        found = bucket_client.list_objects_v2(Bucket="bucket").get("Contents", ())
        names = (each["Key"] for each in found)
        return [key for key in names if "/checkpoints/" in key and key[-1] != "/"]

    return keys


def test_interrupted_training_leaves_its_checkpoint_in_the_bucket(remote, checkpoints):
    assert checkpoints() == []
    with remote.held("Trainer"):
        run = remote.start("--set", "trainer.epochs=2", node="Trainer")
        remote.wait_for_event("epoch 1/")
        assert remote.end(run, signal.SIGINT) == 130
        remote.wait_until_nothing_is_left()
    assert "/state.json'" in str(checkpoints())
    resumed = remote.run("--set", "trainer.epochs=2")
    assert "resuming at step" in resumed.stderr and checkpoints() == []


def test_training_of_a_killed_run_is_resumed_on_another_machine(
    remote, checkpoints, make_small, tmp_path
):
    sets, every = ("--set", "trainer.epochs=12"), "trainer.checkpoint.every=1 steps"
    with remote.held("Trainer"):
        run = remote.start(*sets, "--set", every, node="Trainer")
        remote.wait_for(lambda: "/state.json'" in str(checkpoints()), 120)
        assert remote.end(run, signal.SIGKILL) == -signal.SIGKILL
        remote.wait_until_nothing_is_left()
    words = ("run", str(remote.yaml), *sets)
    done = remote.call(*words, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert "resuming at step" in done.stderr
    assert checkpoints() == []
    local = make_small(tmp_path)
    local.run(*sets)
    assert _variables(local) == _variables(remote)


def test_death_of_the_executor_process_is_a_failed_node(remote):
    with remote.held("Trainer"):
        process = remote.start("--set", "trainer.epochs=5", node="Trainer")
        remote.wait_for_event("epoch 1/")
        os.kill(remote.process("executor_process"), signal.SIGKILL)
        process.communicate(timeout=60)
        remote.wait_until_nothing_is_left()
    assert process.returncode == 1
    done = remote.last_run()
    assert (done["outcome"], done["failed_node"]) == ("failed", "Trainer")
    assert "SIGKILL" in done["cause"]
    assert "running" not in remote.states().values()


def test_history_without_a_yaml_says_that_it_needs_one(remote):
    refused = remote.strategos("runs", expect=2)
    assert "PIPELINE_YAML" in refused.stderr
