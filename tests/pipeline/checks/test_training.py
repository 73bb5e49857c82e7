"""Trainings rejected before the first node: impossible on this machine or data."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import time

import pytest

from strategos.pipeline.checks import training
from strategos.pipeline.config.loading import load


def check(config, environ, probe=False):
    data = config.data.listing()
    return training.check(config, data, probe=probe, environ=environ)


def found(workload, *sets, environ=None):
    config = load(workload, sets=[f"trainer.{text}" for text in sets]).config
    return check(config, environ or {})


def only(workload, *sets, environ=None):
    problems = found(workload, *sets, environ=environ)
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


@pytest.mark.parametrize(
    "strategy",
    ["auto", "one_device", "mirrored", "multi_worker_mirrored", "parameter_server"],
)
def test_what_one_machine_can_do_is_not_rejected(workload, strategy):
    assert found(workload, f"distribution.strategy={strategy}") == []


def test_a_tpu_without_a_tpu_is_rejected_at_the_line_that_asks_for_it(write, workload):
    text = workload.read_text().replace(
        "  module: model\n", "  module: model\n  distribution: {strategy: tpu}\n"
    )
    problem = only(write("tpu.yaml", text))
    assert problem.key == "trainer.distribution.strategy"
    line = text.splitlines().index("  distribution: {strategy: tpu}") + 1
    assert f"tpu.yaml:{line}:28: " in str(problem)
    assert "no TPU is named" in str(problem)


def test_more_devices_than_there_are_is_rejected(workload):
    setting = "distribution={strategy: mirrored, devices: 400}"
    problem = only(workload, setting)
    assert problem.key == "trainer.distribution.devices"
    assert "400" in str(problem)


def test_nccl_without_gpus_is_rejected(workload):
    problem = only(
        workload, "distribution={strategy: mirrored, cross_device_ops: nccl}"
    )
    assert problem.key == "trainer.distribution.cross_device_ops"


def test_xla_between_cpus_is_rejected(workload):
    strategy = "distribution={strategy: mirrored, devices: 2}"
    assert found(workload, "jit_compile=true") == []
    assert only(workload, strategy, "jit_compile=true").key == "trainer.jit_compile"


def test_a_cluster_that_cannot_be_read_is_rejected_by_name(workload):
    problem = only(workload, environ={"TF_CONFIG": "{broken"})
    assert str(problem).startswith("the environment: ")
    assert "TF_CONFIG" in str(problem)


def test_workers_elsewhere_are_not_judged_by_this_machine(workload):
    assert not found(workload, "distribution={strategy: auto, launcher: external}")


def test_launcher_that_cannot_start_here_is_rejected(workload, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = only(workload, "distribution={strategy: auto, launcher: slurm}")
    assert problem.key == "trainer.distribution.launcher"
    assert "no sbatch" in str(problem)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_steps_that_the_data_cannot_fill_are_rejected(workload, tmp_path, kind):
    rows = ["late,tail", *(f"{i % 2},N{i}" for i in range(10))]
    path = tmp_path / f"few.{kind}"
    if kind == "parquet":
        from pyarrow import csv, parquet

        (tmp_path / "few.txt").write_text("\n".join(rows))
        parquet.write_table(csv.read_csv(tmp_path / "few.txt"), path)
    else:
        text = "\n".join(rows).encode()
        path.write_bytes(gzip.compress(text) if kind.endswith("gz") else text)

    def problems(*sets):
        config = load(workload, sets=[f"data.examples={path}", *sets]).config
        return check(config, {})

    drop = "trainer.last_batch=drop"
    assert problems(drop, "trainer.batch_size=10") == []
    (problem,) = problems(drop, "trainer.batch_size=11")
    assert problem.key == "trainer.batch_size"
    assert "received 11; the data have 10 rows" in str(problem)
    steps = ["trainer.batch_size=4", "trainer.epochs=2"]
    assert problems(*steps, "trainer.warm_up_steps=5") == []
    (problem,) = problems(*steps, "trainer.warm_up_steps=9")
    assert problem.key == "trainer.warm_up_steps"


def test_a_tpu_that_does_not_answer_is_reported_within_seconds(workload):
    with socket.socket() as silent:  # listens, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        name = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        tpu = f"trainer.distribution={{strategy: tpu, tpu: {{name: '{name}'}}}}"
        config = load(workload, sets=[tpu]).config
        assert check(config, {}) == []
        started = time.monotonic()
        (problem,) = check(config, {}, probe=True)
        assert time.monotonic() - started < 60  # TensorFlow's own time-out: over 100
    assert problem.key.startswith("trainer.distribution")
    assert name in str(problem)


def test_a_run_that_cannot_be_ends_with_2_before_anything_is_written(workload):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "strategos.pipeline.cli", "run", str(workload)),
            *("--set", "trainer.distribution.strategy=tpu"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no TPU is named" in done.stderr
    assert not (workload.parent / "runs").exists()


def test_nothing_heavy_is_imported(workload):
    code = (
        "import json, sys\n"
        "from strategos.pipeline.config.loading import load\n"
        "from strategos.pipeline.checks.training import check\n"
        f"config = load({str(workload)!r}).config\n"
        "assert not check(config, config.data.listing(), probe=False, environ={})\n"
        "heavy = {'tensorflow', 'tfx', 'apache_beam', 'pandas', 'numpy', 'pyarrow'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout) == [], done.stderr
