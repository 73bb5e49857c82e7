"""`strategos tensorboard`, with the real TensorBoard if it is installed."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.pipeline.history import tensorboard

INSTALLED = importlib.util.find_spec("tensorboard") is not None


def command(*arguments) -> list[str]:
    program = (sys.executable, "-m", "strategos.pipeline.cli", "tensorboard")
    return [*program, *map(str, arguments)]


def fetched(url: str, process: subprocess.Popen) -> bytes:
    """The page at `url`, as soon as the server answers."""
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None, process.stdout.read()
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                return page.read()
        except OSError:
            assert time.monotonic() < end, f"nothing at {url}"
            time.sleep(0.2)


def _own_address() -> str:
    """An address of this machine other than the loopback device's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no network")
        return probe.getsockname()[0]


@pytest.fixture
def free_port(free_ports) -> int:
    return free_ports(1)[0]


@pytest.mark.long
@pytest.mark.skipif(not INSTALLED, reason="TensorBoard is not installed")
def test_the_page_shows_the_runs_by_their_ids(past_runs, free_port):
    process = subprocess.Popen(
        command("--root", past_runs.root, "--port", free_port),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        page = f"http://localhost:{free_port}"
        assert b"<title>TensorBoard" in fetched(page, process)
        wanted = f"{past_runs.ids['pushed'].replace(':', '.')}/train"
        end = time.monotonic() + 60
        while wanted not in (
            shown := json.loads(fetched(f"{page}/data/runs", process))
        ):
            assert time.monotonic() < end, shown
            time.sleep(0.2)
        tags = json.loads(fetched(f"{page}/data/plugin/scalars/tags", process))
        assert "epoch_loss" in tags[wanted]
        with pytest.raises(ConnectionRefusedError):  # as another host would
            socket.create_connection((_own_address(), free_port), 5)
    finally:
        process.terminate()
        printed = process.communicate()[0].splitlines()
    logs = [line for line in printed if " E " in line or "Warning" in line]
    assert not logs  # TensorFlow's on CUDA, Google's on Python versions


def test_a_run_from_the_cache_is_not_shown_twice(past_runs):
    store = past_runs.open()
    found = tensorboard.log_folders(store)
    assert len(set(found.values())) == len(found)
    assert past_runs.ids["pushed"] in found and past_runs.ids["cached"] not in found
    assert list(found) == sorted(found, reverse=True)


def test_one_run_alone_may_be_asked_for(past_runs):
    store = past_runs.open()
    of_all = tensorboard.log_folders(store)
    pushed, cached = past_runs.ids["pushed"], past_runs.ids["cached"]
    assert tensorboard.log_folders(store, run_id=pushed) == {pushed: of_all[pushed]}
    assert tensorboard.log_folders(store, run_id=cached) == {cached: of_all[pushed]}
    with pytest.raises(UserError, match="no such run"):
        tensorboard.log_folders(store, run_id="20010101")


def test_a_run_that_goes_on_is_shown_before_its_logs_are_published(past_runs):
    store = past_runs.open()
    run = tensorboard.runs.run(store, past_runs.ids["pushed"])
    (folder,) = tensorboard._folders_of(store, run)
    assert folder.startswith(str(past_runs.root / "flights" / "Trainer" / "model_run"))
    store.outputs_of = lambda ids: {}
    assert list(tensorboard._folders_of(store, run)) == [folder]


def test_where_nothing_was_logged_the_setting_is_named(past_runs):
    failed = past_runs.ids["failed"]
    with pytest.raises(UserError) as caught:
        tensorboard.log_folders(past_runs.open(), run_id=failed)
    assert f"nothing was logged in run {failed}" in str(caught.value)
    assert "trainer.callbacks.tensorboard" in str(caught.value)


def test_without_tensorboard_its_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install tensorboard"):
        tensorboard.command({"run": "/logs"}, None)


def test_no_run_at_all_is_reported(tmp_path):
    done = subprocess.run(
        command("--root", tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no runs yet" in done.stderr and "Traceback" not in done.stderr
    assert list(Path(tmp_path).iterdir()) == []


DUMP = """
import sys
import tensorflow as tf

debugging = tf.debugging.experimental
writer = debugging.enable_dump_debug_info(sys.argv[1], "FULL_HEALTH", 10)
tf.function(lambda x: tf.math.log(x))(tf.constant(-1.0))
writer.FlushNonExecutionFiles()
writer.FlushExecutionFiles()
"""


@pytest.mark.long
@pytest.mark.skipif(not INSTALLED, reason="TensorBoard is not installed")
def test_the_page_shows_what_the_debugger_has_recorded(tmp_path, free_port):
    task = tmp_path / "host-1"
    subprocess.run([sys.executable, "-c", DUMP, str(task)], check=True)
    process = subprocess.Popen(
        command("--dump", tmp_path, "--port", free_port),
        stdout=subprocess.PIPE,
        text=True,
    )
    url = f"http://localhost:{free_port}/data/plugin/debugger-v2/"
    try:
        end = time.monotonic() + 60
        while not (runs := json.loads(fetched(f"{url}runs", process))):
            assert time.monotonic() < end  # read beside the server
            time.sleep(0.2)
        url += f"graph_execution/digests?run={next(iter(runs))}&begin=0&end=-1"
        kinds: set[str] = set()
        while "Log" not in kinds:
            assert time.monotonic() < end
            found = json.loads(fetched(url, process))["graph_execution_digests"]
            kinds = {each["op_type"] for each in found}
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


def test_a_dump_is_of_one_task(tmp_path):
    with pytest.raises(UserError, match="nothing was recorded"):
        tensorboard.show_dump(str(tmp_path), None)
    for task in ("chief-0", "worker-0"):
        (tmp_path / task).mkdir()
        (tmp_path / task / "tfdbg_events.1.host.metadata").touch()
    with pytest.raises(UserError, match="TensorBoard shows one") as caught:
        tensorboard.show_dump(str(tmp_path), None)
    assert f"{tmp_path}/worker-0" in caught.value.expected
