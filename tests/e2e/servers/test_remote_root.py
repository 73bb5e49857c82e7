"""Artifacts on S3, ML Metadata on a database server, models pushed to this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal

import pytest

from strategos.components.files import filesystems


@pytest.fixture(scope="module")
def remote(bucket, mariadb, metadata_password, small):
    """The small workspace with a remote root."""
    problem = filesystems.missing(bucket)
    if problem:
        pytest.skip(problem)
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


def test_death_of_the_executor_process_is_a_failed_node(remote):
    with remote.held("Trainer"):
        process = remote.start("--set", "trainer.epochs=4", node="Trainer")
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
