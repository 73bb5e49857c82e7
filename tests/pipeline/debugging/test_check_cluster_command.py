"""`strategos check-cluster`: the workers of a training measure their hosts."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from strategos.components.trainer.distribution.strategy import Choice
from strategos.pipeline.debugging.check_cluster_command import bandwidth, slow_parts
from strategos.pipeline.plan import explain

WORKERS = ("chief-0", "worker-0", "worker-1")
PAIRS = [["chief-0", "worker-0"], ["chief-0", "worker-1"], ["worker-0", "worker-1"]]
MEASURED = {
    "workers": [*WORKERS],
    "bytes": 64_000_000,
    "join": [1.0, 1.2, 0.1],
    "compute": [3e10, 1.4e10, 3e10],
    "restore": [0.2, 0.3, 5.0],
    "save": 0.5,
    "all_reduce": 0.3,
    "links": [
        {"workers": pair, "round_trip": 2e-3, "bytes_per_second": rate}
        for pair, rate in zip(PAIRS, (1e9, 4e8, 9e8), strict=True)
    ],
}
GANG = Choice("multi_worker_mirrored", "asked for", workers=3)


@pytest.fixture(scope="module")
def check(copy_workload, tmp_path_factory, warm_tfx):
    """Runs the command on settings of the distribution: exit code, output, folder."""
    folder = tmp_path_factory.mktemp("workload")
    (folder / "rows.csv").write_text("id,distance,carrier,late\n1,1,1,1\n")
    copy_workload("explained", folder)

    def run(*settings, words=()):
        sets = [f"--set=trainer.distribution.{each}" for each in settings]
        command = [*warm_tfx.cli(), "check-cluster", "--megabytes=1", *words, *sets]
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=env, timeout=300
        )
        return done, folder

    return run


@pytest.mark.long
def test_each_worker_and_each_link_is_measured(check):
    gang = ("strategy=multi_worker_mirrored", "workers=3")
    done, folder = check(*gang, words=["--json"])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["workers"] == [*WORKERS]
    assert [link["workers"] for link in found["links"]] == PAIRS
    for name in ("join", "compute", "restore"):
        assert len(found[name]) == 3 and min(found[name]) > 0
    links = found["links"]
    assert all(0 < x["round_trip"] < 1e6 / x["bytes_per_second"] for x in links)
    assert found["save"] > 0 and found["all_reduce"] > 0
    left = [path for path in folder.rglob("*/Trainer/*/*") if path.is_file()]
    assert left == []


def test_a_strategy_without_workers_is_rejected(check):
    done, _ = check("strategy=one_device")
    assert done.returncode == 2
    assert "trainer.distribution.strategy: received one_device" in done.stderr
    assert "multi_worker_mirrored" in done.stderr


def test_what_is_slow_is_named_beside_the_median():
    slow = list(slow_parts(MEASURED))
    assert slow == [
        "worker-0 computes 14 GFLOP/s, the median is 30 GFLOP/s",
        "worker-1 restores in 5.0 s, the median is 300 ms",
        "between chief-0 and worker-1 400 MB/s pass, the median is 900 MB/s",
    ]
    assert list(slow_parts({**MEASURED, "workers": [*WORKERS[:2]]})) == []


def test_the_bandwidth_gives_the_measured_all_reduce_in_an_explanation():
    model = explain.ModelSize(0, 0, gradient_bytes=MEASURED["bytes"], sparse_bytes=0)
    rate = bandwidth(MEASURED)
    assert explain.exchange_seconds(GANG, model, rate) == pytest.approx(0.3)
    assert bandwidth({**MEASURED, "all_reduce": 1e-3}) == 4e8  # slowest link
