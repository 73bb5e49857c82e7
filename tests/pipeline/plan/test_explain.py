"""`strategos explain distribution`: its figures and warnings."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from strategos.components.trainer.distribution.strategy import Choice
from strategos.pipeline import cli
from strategos.pipeline.plan import explain
from strategos.pipeline.plan.explain import Explanation, ModelSize, StepTime
from strategos.pipeline.view import explain as explain_view

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture(scope="module")
def transformed(copy_workload, tmp_path_factory, warm_tfx) -> Path:
    """A workload that was run up to Transform; its YAML."""
    folder = tmp_path_factory.mktemp("workload")
    rows = (f"{n},{n % 7 / 7},{n % 5},{n % 2}" for n in range(500))
    (folder / "rows.csv").write_text("\n".join(["id,distance,carrier,late", *rows]))
    copy_workload("explained", folder)
    command = [*warm_tfx.cli(), "run", "pipeline.yaml", "--to", "Transform"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "pipeline.yaml"


@pytest.fixture
def explained(capsys, monkeypatch):
    """Runs the command: `explained(yaml, "strategy=…")` gives code and output."""
    for variable in ("TF_CONFIG", "TPU_NAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    def run(yaml, *settings, as_json=False, module="model"):
        sets = [f"trainer.distribution.{setting}" for setting in settings]
        arguments = ["explain", "distribution", str(yaml)]
        for each in (f"trainer.module={module}", *sets):
            arguments += ["--set", each]
        code = cli.main([*arguments, *(["--json"] if as_json else [])])
        found = capsys.readouterr()
        return code, json.loads(found.out) if as_json else found.out + found.err

    return run


def test_before_any_run_the_choice_is_reported_and_what_to_run(workload, explained):
    code, text = explained(workload, "strategy=mirrored", "devices=2")
    assert code == 0
    assert "strategy   mirrored: asked for; no GPU is visible, 2 logical" in text
    assert "replicas   2 in one process" in text
    assert "batch      512 rows a step, 256 on each replica" in text
    assert f"strategos run {workload} --to Transform" in text


def test_the_choice_follows_the_cluster(workload, explained, monkeypatch):
    cluster = {"worker": ["a:1", "b:1", "c:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    _, found = explained(workload, as_json=True)
    assert (found["strategy"], found["workers"]) == ("multi_worker_mirrored", 3)
    assert found["reason"].startswith("the cluster has several workers")
    assert found["batch_per_replica"] == 171
    assert found["warning"] == ""


@pytest.mark.parametrize(
    "settings, message",
    [
        (["strategy=tpu"], "received 'tpu'; no TPU is named"),
        (["strategy=mirrored", "devices=100"], "a CPU stands in for at most 16"),
        (["strategy=magic"], 'received "magic"'),
    ],
)
def test_what_cannot_be_is_rejected(workload, explained, settings, message):
    code, text = explained(workload, *settings)
    assert code == 2
    assert message in text


@pytest.mark.long
def test_data_and_model_are_reported_after_transform(transformed, explained):
    code, text = explained(transformed)
    assert code == 0
    assert "strategy   one_device: no GPU is visible" in text
    assert "rows for training" in text and "steps an epoch, the last of" in text
    assert "model      4,029 parameters; gradients of" in text
    assert "of it for rows of embeddings" in text
    assert "built for" not in text  # the user's log


def test_gradients_of_an_embedding_are_the_rows_that_a_batch_touches(
    transformed, explained
):
    _, found = explained(transformed, "strategy=mirrored", "devices=2", as_json=True)
    model = found["model"]
    assert model["parameters"] == model["trainable"] == 1000 * 4 + 2 * 8 + 12 + 1
    assert model["sparse_bytes"] == 16 * (4 * 4 + 8)  # 16 rows: values and an index
    dense = model["gradient_bytes"] - model["sparse_bytes"]
    assert dense == 4 * (2 * 8 + 12 + 1)
    data = found["data"]
    steps, last = divmod(data["rows"], 32)
    assert 350 < data["rows"] < 450
    assert (data["steps_per_epoch"], data["last_batch"]) == (steps + 1, last)


def test_with_a_bandwidth_the_exchange_is_compared_with_computing(
    transformed, explained
):
    settings = ("strategy=multi_worker_mirrored", "bandwidth=10Mbit")
    code, found = explained(transformed, *settings, as_json=True)
    assert code == 0
    step = found["step"]
    assert step["alone"] > 0 and step["compute"] > 0
    # Each of the two replicas sends its gradients once, at 1.25 MB/s.
    assert step["exchange"] == pytest.approx(found["model"]["gradient_bytes"] / 1.25e6)
    assert step["together"] == pytest.approx(step["compute"] + step["exchange"])
    assert bool(found["warning"]) is (step["together"] >= step["alone"])


@pytest.mark.parametrize(
    ("step", "shares_cores", "warning"),
    [
        (StepTime(0.3, 0.1, 0.1, 0.2), True, ""),
        (StepTime(0.2, 0.1, 0.1, 0.2), True, "no faster than one device: all replicas"),
        (
            StepTime(0.1, 0.1, 0.1, 0.2),
            True,
            "slower than one device, by a factor of 2.0",
        ),
        (StepTime(0.1, 0.1, 0.2, 0.3), False, "by a factor of 3.0: use a larger batch"),
        (
            StepTime(0.1, 0.2, 0.1, 0.3),
            False,
            "3.0: the batch is too small to be divided",
        ),
    ],
)
def test_replicas_that_do_not_pay_are_warned_of(capsys, step, shares_cores, warning):
    choice = Choice("multi_worker_mirrored", "asked for", workers=2)
    text = explain._slower(step, shares_cores)
    explain_view.show(Explanation(choice, 32, step=step, warning=text))
    shown = capsys.readouterr().out
    assert "on one device; all replicas: " in shown
    assert warning in text and ("  warning    " in shown) is bool(warning)


def test_an_error_in_build_model_is_reported_with_its_line(transformed, explained):
    source = "def build_model(context):\n    return context.nothing\n"
    (transformed.parent / "broken.py").write_text(source)
    code, text = explained(transformed, module="broken")
    assert code == 1
    assert "broken.py:2: AttributeError" in text


MODEL = ModelSize(25_000_000, 25_000_000, gradient_bytes=100_000_000, sparse_bytes=0)
GIGABYTE = 1e9


@pytest.mark.parametrize("replicas, seconds", [(1, 0.0), (2, 0.1), (4, 0.15)])
def test_a_ring_moves_twice_the_gradients_but_for_one_share(replicas, seconds):
    choice = Choice("multi_worker_mirrored", "", workers=replicas)
    found = explain.exchange_seconds(choice, MODEL, GIGABYTE)
    assert found == pytest.approx(seconds)


def test_each_replica_gets_the_embedding_rows_of_all_others():
    choice = Choice("mirrored", "", devices=4)
    model = ModelSize(1, 1, gradient_bytes=1000, sparse_bytes=1000)
    assert explain.exchange_seconds(choice, model, 1000.0) == pytest.approx(3.0)


def test_replicas_on_hosts_of_their_own_divide_the_computing():
    choice = Choice("multi_worker_mirrored", "", workers=2)
    times = {"alone": 1.0, "share": 0.5}
    apart = explain.step_of(choice, MODEL, GIGABYTE, **times, shares_cores=False)
    assert apart.together == pytest.approx(0.5 + 0.1)
    shared = explain.step_of(choice, MODEL, GIGABYTE, **times, shares_cores=True)
    assert shared.together == pytest.approx(1.0 + 0.1)


def test_parameter_servers_are_as_slow_as_their_links():
    choice = Choice("parameter_server", "", workers=8, parameter_servers=1)
    times = {"alone": 0.2, "share": 0.2, "shares_cores": False}
    one = explain.step_of(choice, MODEL, GIGABYTE, **times)
    assert one.together == pytest.approx(0.2)  # 8 workers share one server's link
    choice = Choice("parameter_server", "", workers=8, parameter_servers=8)
    eight = explain.step_of(choice, MODEL, GIGABYTE, **times)
    assert eight.together == pytest.approx((0.2 + 0.2) / 8)
