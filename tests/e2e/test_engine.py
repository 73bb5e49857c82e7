"""A whole pipeline whose data are worked on by a real Flink."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.shards.flink import jars, java

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", autouse=True)
def installed():
    try:
        java.program()
        jars.find()
    except UserError as error:
        pytest.skip(error.headline)


def test_run_on_flink_has_the_metrics_of_the_run_in_threads(copy_flights, tmp_path):
    threads, flink = copy_flights(tmp_path / "a"), copy_flights(tmp_path / "b")
    threads.run()
    done = flink.run("--set", "run.engine.runner=flink", warm=False)
    flink.wait_until_nothing_is_left(seconds=30)
    ours, theirs = flink.last_run(), threads.last_run()
    assert ours["outcome"] == "blessed" and ours["nodes"][0]["rows"] == flink.rows
    assert ours["metrics"] == pytest.approx(theirs["metrics"], abs=1e-6)
    assert f"pushed     {flink.folder}" in done.stdout
    flink.run("--set", "run.engine.runner=flink")  # starts no cluster
    assert set(flink.states().values()) == {"cached"}
    assert len(list(flink.folder.glob("runs/.strategos/runs/*/flink"))) == 1
