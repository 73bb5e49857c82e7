"""A disk that is really full, as libraries report it."""

from __future__ import annotations

import subprocess

import pytest

from strategos.components.errors import UserError
from strategos.components.files import full_disk
from strategos.pipeline.root import metadata


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 400 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system here (not root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder):
    with pytest.raises(OSError) as raised, (folder / "root" / "file").open("wb") as f:
        f.write(bytes(1 << 20))
    return raised.value


def test_file_that_cannot_be_written_names_disk_and_folder(small_disk):
    (small_disk / "root").mkdir()
    error = _fill(small_disk)
    assert full_disk.is_reported(str(error))
    said = full_disk.message(str(error), str(small_disk / "root" / "more"))
    assert f"no space left in {small_disk / 'root'}, " in said
    assert f"on the disk mounted at {small_disk} (0 bytes of 410 kB free" in said
    assert "run.root=DIR" in said and "run again" in said


def test_path_in_the_message_is_the_place(small_disk, tmp_path):
    text = f"[Errno 28] No space left on device: '{small_disk}/gone/model'"
    assert full_disk.message(text, str(tmp_path)).startswith(
        f"no space left in {small_disk}, on the disk mounted at {small_disk} ("
    )


@pytest.mark.parametrize("left", [0, 200_000])
def test_ml_metadata_on_a_full_disk_is_not_called_broken(small_disk, left):
    (small_disk / "root").mkdir()
    spare = small_disk / "spare"
    spare.write_bytes(bytes(left))
    _fill(small_disk)
    spare.unlink()
    config = metadata.connection(small_disk / "root")
    with pytest.raises(UserError) as refusal:
        metadata.initialise(config)
    assert "metadata.sqlite: no space left in" in str(refusal.value)
    assert "backup" not in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    ["cannot commit - no transaction is active", "Transaction already open."],
)
def test_what_follows_sqlites_rollback_is_reported_as_a_full_disk(text, tmp_path):
    assert full_disk.is_reported(text)
    message = full_disk.message(text, str(tmp_path))
    assert "database or disk is full" in message
    assert "transaction" not in message.lower()
