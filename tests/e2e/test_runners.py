"""The same pipeline through every runner of this machine."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def local(small):
    small.run()
    return small.last_run()


@pytest.mark.parametrize("runner", ["beam", "tfx"])
def test_other_runners_give_the_results_of_local(local, make_small, tmp_path, runner):
    workspace = make_small(tmp_path)
    if runner == "beam":
        done = workspace.run("--runner", "beam")
        assert "blessed" in done.stdout
    else:
        workspace.run_by_tfx()
    other = workspace.last_run()
    assert other["metrics"] == pytest.approx(local["metrics"], abs=1e-4)
    assert {node["state"] for node in other["nodes"]} == {"complete"}
    assert len(workspace.serving()) == 1


@pytest.mark.long
def test_beam_runner_takes_from_the_cache_runs_own_nodes_and_stops_at_a_gate(
    small, local, copy_workload
):
    copy_workload("own", small.folder)
    done = small.run(
        "--overlay",
        str(small.folder / "own.yaml"),
        "--runner",
        "beam",
        "--set",
        "evaluator.bounds.auc.at_least=0.999",
        expect=3,
    )
    assert "not blessed" in done.stdout
    states = small.states()
    assert states["Counted"] == states["Limit"] == "complete"
    assert states["Trainer"] == "cached"
