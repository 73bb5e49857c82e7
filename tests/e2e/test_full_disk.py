"""Runs on a disk that is really full."""

from __future__ import annotations

import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a small file system: `small_disk(size, workspace)`; its folder."""
    mounted = []

    def mount(size, workspace):
        folder = tmp_path / "small-disk"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("cannot mount a small file system here (not root)")
        mounted.append((folder, workspace))
        return folder

    yield mount
    for folder, workspace in mounted:
        # Forks of the warm process may still be ending.
        workspace.wait_for(lambda folder=folder: not unmount(folder), seconds=30)


def unmount(folder):
    done = subprocess.run(["umount", str(folder)], capture_output=True)
    return done.returncode


def fill(disk):
    with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(b"0" * 4096)


# For the record of the run, for ML Metadata of a node, for the rows.
@pytest.mark.parametrize("size", ["300k", "350k", "600k"])
def test_full_disk_is_named_with_its_folder(make_flights, small_disk, size):
    workspace = make_flights()
    small = small_disk(size, workspace)
    root = f"run.root={small}/runs"
    done = workspace.run("--to", "Transform", "--set", root, expect=None)
    assert done.returncode in (1, 2)
    assert f"no space left in {small}" in done.stdout + done.stderr
    assert f"on the disk mounted at {small} (" in done.stdout + done.stderr
    assert "bug in Strategos" not in done.stderr
    assert "no transaction is active" not in done.stderr


@pytest.mark.faults
def test_push_to_a_full_disk_goes_through_once_there_is_room(
    make_small, small_disk, tmp_path
):
    small = make_small(tmp_path / "checkout")
    disk = small_disk("2m", small)
    fill(disk)
    words = ("retrain", str(small.yaml), "--if-due", "--set")
    words += (f"pusher.to={disk}/serving",)
    failed = small.strategos(*words, expect=1).stdout
    assert failed.count(f"no room for another version on the disk mounted at {disk} (")
    assert list((disk / "serving").iterdir()) == []
    assert "the next attempt may start in " in small.strategos(*words).stdout
    (disk / "filler").unlink()
    retry = (*words, "--set", "schedule.retry_after=1s")
    small.wait_for(lambda: "Not due" not in small.strategos(*retry).stdout, seconds=100)
    assert small.states()["Trainer"] == "cached"
    assert len(list((disk / "serving").glob("[0-9]*"))) == 1


@pytest.mark.faults
def test_a_run_with_retries_goes_through_once_there_is_room_and_says_so(
    make_small, small_disk, tmp_path
):
    small = make_small(tmp_path / "checkout")
    disk = small_disk("2m", small)
    fill(disk)
    sets = (f"pusher.to={disk}/serving", "run.retries=9")
    words = [word for text in sets for word in ("--set", text)]
    process = small.start(*words, node="Pusher")
    small.wait_for_event("tried again after", seconds=100)
    (disk / "filler").unlink()
    shown = process.communicate(timeout=100)[0]
    assert process.returncode == 0, shown
    reason = (
        f"Pusher: tried again after: pusher.to: {disk}/serving: no room for another"
    )
    assert f"warning    {reason}" in shown
    assert small.states()["Pusher"] == "complete"
    assert "tried again" not in small.run(*words).stdout  # cached: nothing was
