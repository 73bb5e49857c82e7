"""A container component in runs of this machine, by a real podman."""

from __future__ import annotations

import json
import signal

import podman
import pytest
import server

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TO = ("--to", "Shouted")


@pytest.fixture(scope="module")
def engine():
    with server.running(podman.Podman()) as running:
        yield running


def test_a_container_component_is_a_node_like_others(
    small, copy_workload, engine, monkeypatch
):
    copy_workload("own", small.folder)
    overlay = ("--overlay", str(small.folder / "shouted.yaml"))
    monkeypatch.setenv("DOCKER_HOST", f"{engine.address}-none")
    said = small.run(*overlay, *TO, expect=2).stderr
    assert "shouted.yaml:6" in said and "neither Docker nor podman answers" in said
    assert not (small.folder / "runs" / "small").exists()

    monkeypatch.setenv("DOCKER_HOST", engine.address)
    small.run(*overlay, *TO)
    assert small.states()["Shouted"] == "complete"
    (made,) = (small.folder / "runs" / "small" / "Shouted" / "shouted").glob("[0-9]*")
    assert (made / "count.txt").read_text() == "4 FILES"
    shown = small.strategos("lineage", str(made), str(small.yaml), "--json")
    steps = [each["node"] for each in json.loads(shown.stdout)["steps"]]
    assert steps == ["ExampleGen", "Counted", "Shouted"]
    small.run(*overlay, *TO)
    assert {*small.states().values()} == {"cached"}

    beam = ("--runner", "beam", "--set", "nodes.Shouted.parameters.code=3")
    assert "said it loud" in small.run(*overlay, *TO, *beam, expect=3).stderr
    assert small.last_run()["outcome"] == "stopped"

    source = small.folder / "own.py"
    source.write_text(source.read_text().replace("exit $3", "sleep 600"))
    process = small.start(*overlay, *TO, node="Shouted")
    small.wait_for(engine.containers, 60)
    assert small.end(process, signal.SIGINT) == 130
    assert not engine.containers()
