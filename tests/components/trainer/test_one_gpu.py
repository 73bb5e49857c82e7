"""Processes beside the Trainer on a machine with a GPU, and what checks it there."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf

from strategos.components.trainer.distribution.environment import visible_gpus

CHECKS = Path(__file__).parents[2] / "lab" / "gpu" / "one_gpu.py"

needs_a_gpu = pytest.mark.skipif(
    not visible_gpus(), reason="a GPU is needed: `make test-gpu` on such a machine"
)

READ = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.records import read

    found = [b.numpy().tolist() for b in read.batches(sys.argv[1:], 2)]
    print(json.dumps([len(tf.config.get_visible_devices("GPU")), str(found)]))
    sys.stdout.flush()
    os._exit(0)
"""


BESIDE = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.container import warm_start

    warm_start.prepare()
    device = tf.reduce_sum(tf.ones([3])).device
    print(json.dumps([device[-5:], os.environ["CUDA_VISIBLE_DEVICES"]]), flush=True)
    os._exit(0)
"""


@pytest.mark.gpu
@needs_a_gpu
def test_files_are_read_in_a_process_with_a_gpu(warm_tensorflow, tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "0")) as writer:
        for record in (b"1", b"2", b"3"):
            writer.write(record)
    code = textwrap.dedent(READ)
    gpus, found = warm_tensorflow.script(code, str(tmp_path / "0")).answer()
    assert (gpus, found) == (len(visible_gpus()), str([[b"1", b"2"], [b"3"]]))


@pytest.mark.gpu
@needs_a_gpu
def test_the_process_that_runs_nodes_uses_no_gpu_and_hides_none(warm_tfx):
    started = warm_tfx.script(textwrap.dedent(BESIDE), CUDA_VISIBLE_DEVICES="0")
    assert started.answer() == ["CPU:0", "0"]


@pytest.mark.long
def test_the_checks_of_one_gpu_run_on_a_cpu_where_tfx_and_beam_are_missing(tmp_path):
    bundle, missing = tmp_path / "bundle", tmp_path / "missing"
    subprocess.run([sys.executable, CHECKS, "bundle", bundle], check=True)
    for package in ("tfx", "apache_beam"):
        (missing / package).mkdir(parents=True)
        (missing / package / "__init__.py").write_text("raise ImportError('missing')")
    some = ["one_device", "two workers, ring", "killed", "memory"]
    done = subprocess.run(
        [sys.executable, bundle / "one_gpu.py", "check", "--cpu", *some],
        env={**os.environ, "PYTHONPATH": str(missing)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "all checks passed"
    assert [line[:22].strip() for line in lines] == some
    assert "2 workers" in lines[1] and "equal to the last bit" in lines[2]


@pytest.mark.skipif(bool(visible_gpus()), reason="a GPU is there")
def test_without_a_gpu_the_checks_do_not_pass_on_the_cpu():
    done = subprocess.run(
        [sys.executable, CHECKS, "check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "TensorFlow finds no GPU; --cpu takes the CPU for it" in done.stderr
