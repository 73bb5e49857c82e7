"""Runs on a disk that is really full."""

from __future__ import annotations

import subprocess

import pytest


def unmount(folder):
    return subprocess.run(["umount", str(folder)], capture_output=True)


@pytest.mark.parametrize("size", ["350k", "600k"])  # for ML Metadata, for the rows
def test_full_disk_is_named_with_its_folder(make_flights, tmp_path, size):
    workspace = make_flights()
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    try:
        root = f"run.root={small}/runs"
        to_transform = ("--to", "Transform", "--set", root)
        done = workspace.run(*to_transform, expect=None)
    finally:
        # Forks of the warm process may still be ending.
        workspace.wait_for(lambda: not unmount(small).returncode, seconds=30)
    assert done.returncode in (1, 2)
    assert f"no space left in {small}" in done.stdout + done.stderr
    assert f"on the disk mounted at {small} (" in done.stdout + done.stderr
    assert "bug in Strategos" not in done.stderr
    assert "no transaction is active" not in done.stderr
