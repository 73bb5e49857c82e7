"""Files and folders that readers see as before, or complete."""

from __future__ import annotations

import os

import pytest

from strategos.components.files import commit


def test_content_replaces_a_file_as_a_whole(tmp_path):
    file = tmp_path / "file.json"
    for content in ("ä", b"\0", ""):
        commit.write(str(file), content)
        expected = content.encode() if isinstance(content, str) else content
        assert file.read_bytes() == expected
    assert os.listdir(tmp_path) == ["file.json"]


def test_failed_block_leaves_the_former_content_alone(tmp_path):
    (tmp_path / "file.json").write_text("former")
    for fault in (KeyboardInterrupt(), OSError("No space left")):
        with pytest.raises(type(fault)), commit.aside(tmp_path / "file.json") as made:
            made.write_text("half")
            assert len(list(tmp_path.glob("*.json"))) == 1
            raise fault
    assert os.listdir(tmp_path) == ["file.json"]
    assert (tmp_path / "file.json").read_text() == "former"


def test_what_a_killed_process_left_under_a_fixed_name_is_removed(tmp_path):
    (tmp_path / ".part").mkdir()
    (tmp_path / ".part" / "old").touch()
    with commit.aside(tmp_path / "folder", ".part") as made:
        made.mkdir()
        (made / "new").touch()
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["new"]


def test_link_is_replaced_and_not_its_target(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with commit.aside(tmp_path / "link") as made:
        made.symlink_to(tmp_path / "target")
    assert os.readlink(tmp_path / "link") == str(tmp_path / "target")


@pytest.mark.parametrize("shared", [False, True])
def test_folder_of_a_faster_process_stays(tmp_path, shared):
    def commits():
        with commit.aside(tmp_path / "folder", shared=shared) as made:
            made.mkdir()
            (made / "mine").touch()
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / "theirs").touch()

    if shared:
        commits()
    else:
        with pytest.raises(OSError, match="not empty"):
            commits()
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(tmp_path / "folder") == ["theirs"]
