"""The folder of a root's local state."""

from __future__ import annotations

import stat
from pathlib import Path

from strategos.pipeline.root import lock
from strategos.pipeline.root.state import state_folder


def test_state_of_a_local_root_is_under_it(tmp_path):
    assert state_folder(tmp_path) == tmp_path / ".strategos"


def test_state_of_a_remote_root_is_in_the_home_of_its_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = state_folder("s3://bucket/flights")
    assert folder.parent == tmp_path / "strategos" / "roots"
    assert folder.name.startswith("s3-bucket-flights-")
    assert folder == state_folder("s3://bucket/flights/")
    assert folder != state_folder("s3://bucket-flights")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder("gs://b").is_relative_to(Path.home() / ".local/state/strategos")


def test_long_root_has_a_folder_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state_folder(f"s3://bucket/{'long/' * 200}").mkdir(parents=True)


def test_remote_root_is_locked_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with lock.hold("s3://bucket/flights", run_id="this"):
        assert lock.holder("s3://bucket/flights")["run_id"] == "this"
        assert lock.holder("s3://bucket/others") is None


def test_the_users_state_is_for_the_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with lock.hold("s3://bucket/flights"):
        mode = (tmp_path / "state" / "strategos").stat().st_mode
    assert stat.S_IMODE(mode) == 0o700
    shared = tmp_path / "root"  # the state of a local root has the root's mode
    with lock.hold(shared):
        assert stat.S_IMODE((shared / ".strategos").stat().st_mode) != 0o700
