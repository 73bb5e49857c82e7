"""Trains the cells of one strategy in processes that stay between cells."""

from __future__ import annotations

import json
import re
import runpy
import zlib
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[3]
MATRIX = runpy.run_path(str(Path(__file__).with_name("combinations.py")))

# By the precision of the layers: of measured values, relative and absolute; of weights
# and answers, in parts of the largest, which is at least 1.
TOLERANCES = {
    "float32": (2e-4, 1e-4, 1e-4),
    "bfloat16": (3e-2, 3e-2, 0.15),
    "float16": (1e-2, 1e-2, 3e-2),
}
CHILD = """
import sys
sys.path.insert(0, {tests!r})
import matrix_training
matrix_training.main({request!r})
"""


def pytest_generate_tests(metafunc):
    """Gives the tests of a strategy's file its cells."""
    if "cell" not in metafunc.fixturenames:
        return
    strategy = metafunc.module.STRATEGY
    cells = [x for x in MATRIX["all_cells"]() if x["strategy"] == strategy]
    metafunc.parametrize("cell", cells, ids=MATRIX["name"])


@pytest.fixture(scope="session")
def matrix_workload(workload_in, copy_once, write_flights, transform):
    """961 rows to train on, 301 to evaluate on; some features sparse or ragged."""

    def make(folder):
        made = workload_in(folder, "matrix")
        write_flights(made, MATRIX["ROWS"], MATRIX["EVALUATED"])
        transform(made)

    return copy_once("matrix", make)


@pytest.fixture(scope="module")
def trained(request, matrix_workload, script, tmp_path_factory, spec_of, free_ports):
    """Finds what a cell of this file gives; cells train in the order of the tests."""
    cells = [
        item.callspec.params["cell"]
        for item in request.session.items
        if item.path == request.path
    ]
    strategy = request.module.STRATEGY
    spec = spec_of(
        matrix_workload,
        batch_size=1,
        epochs=1,
        distribution=_distribution(strategy),
        label="late",
    )
    file = tmp_path_factory.mktemp("cells") / "request.json"
    asked = {"spec": spec.to_json(), "batches": MATRIX["BATCHES"]}
    alone = [MATRIX["OF_REPLICAS"].isdisjoint(x.items()) for x in cells]
    asked["cells"] = [
        {**cell, "stop": _stop(cell, number), "alone": alone[number]}
        for number, cell in enumerate(cells)
    ]
    file.write_text(json.dumps(asked))
    code = CHILD.format(tests=str(TESTS), request=str(file))
    forks = [script(code, **config) for config in _configs(strategy, free_ports)]
    answers = _answers(forks)
    found = {}

    def find(cell):
        name = MATRIX["name"](cell)
        while name not in found:
            found[MATRIX["name"](cells[len(found)])] = next(answers)
        return found[name]

    yield find
    if len(found) == len(cells):
        assert not list(answers)  # and all processes have ended
    else:  # a test was skipped, or has failed
        for fork in forks:
            fork.kill()


def _stop(cell, number):
    """The step after which every third cell is stopped once; 0 for the others.

    TensorFlow's own random state is in no checkpoint.
    """
    if number % 3 or cell["dropout"] == "stock_dropout":
        return 0
    return 1 + zlib.crc32(MATRIX["name"](cell).encode()) % 29


def _distribution(strategy):
    replicas = MATRIX["REPLICAS"][strategy]
    if strategy == "two_workers":
        return {"strategy": "multi_worker_mirrored", "workers": 2}
    name = "mirrored" if strategy.startswith("mirrored") else strategy
    return {"strategy": name, **({"devices": replicas} if replicas > 1 else {})}


def _configs(strategy, free_ports):
    """The environment of each process."""
    if strategy != "two_workers":
        return [{}]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks
    ]


def _answers(forks):
    """Yields the answers of the first process, and waits for the end of all."""
    for line in forks[0].stdout:
        if line[:1] == b"{":
            yield json.loads(line)
        if line[:1] == b"[":
            break
    for fork in forks:
        fork.output()


@pytest.fixture
def as_plain_keras(trained):
    """Compares what a cell gives with what plain Keras gives."""

    def compare(cell):
        found = trained(cell)
        if rejection := MATRIX["rejection"](cell):
            assert re.search(rejection, found.get("rejected", str(found)))
            return
        assert "history" in found, found.get("failed") or found
        relative, absolute, apart = TOLERANCES[cell["precision"]]
        assert found["drops"] == MATRIX["drops_last_batch"](cell)
        if not MATRIX["plain_is_right"](cell):
            assert np.isfinite(list(found["history"].values())).all()
            return
        history, expected = found["history"], found["expected"]
        if MATRIX["REPLICAS"][cell["strategy"]] > 1:
            # Plain Keras sums it, or has that of one replica.
            expected.pop("squares", None)
            history.pop("squares", None)
        assert history.keys() == expected.keys()
        for name, values in expected.items():
            # tf-keras measures sums inexactly where replicas have not as many rows.
            several = cell["loss"] in ("sum", "none") and name == "val_loss"
            np.testing.assert_allclose(
                history[name],
                values,
                rtol=0.02 if several else relative,
                atol=absolute,
                err_msg=name,
            )
        assert max(found["weights"]) < apart
        assert found["answers"] < apart
        if found["resumed"]:
            stopped = f"resumed after step {found['resumed']['stop']}"
            assert max(found["resumed"]["weights"]) < apart, stopped
            for name in history:
                values = found["resumed"]["history"][name]
                np.testing.assert_allclose(
                    values, history[name], rtol=relative, atol=absolute, err_msg=stopped
                )
        if cell["average"] == "none" and cell["keep"] == "last":
            for name, value in found["evaluation"].items():
                if cell["loss"] == "none" and name == "loss":
                    continue
                last = history[f"val_{name}"][-1]
                assert value == pytest.approx(last, rel=relative, abs=absolute), name

    return compare
