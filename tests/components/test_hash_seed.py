"""User code sees one order of a set, whatever the hash seed of the user's shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

WORKER = """
from strategos.components.worker_process import serve
serve(lambda request: {"order": list({f"f{i}" for i in range(20)})})
"""
STARTS = """
import json, sys
from strategos.components import fork_server, worker_process
from strategos.components.worker_process import TENSORFLOW

if sys.argv[1] == "forked":
    fork_server.start()
answer = worker_process.run("a_worker", {}, name="a", env=TENSORFLOW)
print(json.dumps(answer["order"]))
"""
STEP = """
import json, sys
from strategos.components import worker_process

worker_process.restart_with_hash_seed()
print(json.dumps([sys.argv[1:], list({f"f{i}" for i in range(20)})]))
"""


def _printed(code, *arguments, seed, **environ):
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONHASHSEED": seed, **environ},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.parametrize(
    "start", [pytest.param("cold", marks=pytest.mark.cold), "forked"]
)
def test_a_worker_does_not_depend_on_the_hash_seed_of_its_starter(tmp_path, start):
    (tmp_path / "a_worker.py").write_text(WORKER)
    seeds = ("1", "2", "random", "0")
    path = {"PYTHONPATH": str(tmp_path)}
    found = [_printed(STARTS, start, seed=seed, **path) for seed in seeds]
    assert found == [found[0]] * 4


def test_a_step_of_a_cluster_does_not_depend_on_the_hash_seed_of_its_container():
    found = [_printed(STEP, "a", "b c", seed=seed) for seed in ("1", "random", "0")]
    assert found == [[["a", "b c"], found[0][1]]] * 3
