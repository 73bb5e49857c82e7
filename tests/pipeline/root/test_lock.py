from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from strategos.components.errors import BadInputError
from strategos.pipeline.root import lock


def test_second_run_on_a_root_is_rejected_naming_the_holder(tmp_path):
    again = lock.hold(tmp_path)
    with lock.hold(tmp_path, run_id="first"), pytest.raises(BadInputError) as caught:
        again.__enter__()
    assert "run first has been running since" in str(caught.value)
    assert str(os.getpid()) in str(caught.value)


def test_holder_is_known_while_it_holds_and_not_after(tmp_path):
    assert lock.holder(tmp_path) is None
    with lock.hold(tmp_path, run_id="r1"):
        assert lock.holder(tmp_path)["run_id"] == "r1"
    assert lock.holder(tmp_path) is None


def test_who_asks_for_the_holder_gets_in_no_runs_way(tmp_path):
    with lock.hold(tmp_path):
        pass
    with lock.lock_file(tmp_path).open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)  # as `holder` does
        ends = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        ends.start()
        with lock.hold(tmp_path, run_id="r1"):
            assert lock.holder(tmp_path)["run_id"] == "r1"
        ends.join()


def test_lock_of_a_killed_holder_is_taken_over(tmp_path):
    program = (
        "import sys, time; from strategos.pipeline.root import lock\n"
        "with lock.hold(sys.argv[1], run_id='dead'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"held\n"
    assert lock.holder(tmp_path)["run_id"] == "dead"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lock.hold(tmp_path, run_id="next"):
        assert lock.holder(tmp_path)["run_id"] == "next"


def test_root_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    held = lock.hold(tmp_path / "file" / "root")
    with pytest.raises(BadInputError, match=r"run\.root"):
        held.__enter__()


def test_state_of_a_remote_root_that_cannot_be_made_names_its_variable(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(BadInputError, match="or set XDG_STATE_HOME to a folder"):
        lock.hold("s3://bucket/root").__enter__()
