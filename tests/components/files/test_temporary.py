"""Temporary folders: private, removed at the end, after kill -9 by the next process."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategos.components.files import temporary

HOLD = """
import time
from pathlib import Path
from strategos.components.files import temporary
with temporary.folder() as made:
    Path(made, "weights").write_text("large")
    print(made, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hold(monkeypatch, tmp_path):
    """Starts a process with a temporary folder that looks an hour old."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    processes = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        folder = Path(process.stdout.readline().strip())
        _age(folder)
        return process, folder

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _age(folder):
    hour_ago = time.time() - 3600
    os.utime(folder, (hour_ago, hour_ago))


def test_the_folder_of_a_killed_process_is_removed_by_the_next(hold):
    killed, abandoned = hold()
    _, used = hold()
    assert abandoned.exists()  # its process is alive
    killed.kill()
    killed.wait()
    with temporary.folder() as made:
        assert not abandoned.exists()
        assert (used / "weights").read_text() == "large"
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    assert not Path(made).exists()


def test_what_others_may_have_made_is_left_alone(hold, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").touch()
    (tmp_path / "strategos-link").symlink_to(precious)
    (tmp_path / "strategos-file").touch()
    (tmp_path / "strategos-open").mkdir()
    (tmp_path / "strategos-open").chmod(0o777)
    (tmp_path / "strategos-new").mkdir(mode=0o700)  # created, but not yet locked
    foreign = tmp_path / "strategos-foreign"
    foreign.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(foreign, 65534, 65534)
        _age(foreign)
    for name in ("precious", "strategos-file", "strategos-open"):
        _age(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    with temporary.folder():
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_shared_folder_lasts_as_long_as_one_process_uses_it(hold, tmp_path):
    with temporary.shared("name") as one:
        with temporary.shared("name") as other:
            assert one == other == str(tmp_path / "strategos-name")
            Path(one, "file").write_text("large")
            _age(Path(one))
            with temporary.folder():
                assert Path(one, "file").exists()
        assert Path(one, "file").exists()
    assert not Path(one).exists()
