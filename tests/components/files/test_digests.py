from __future__ import annotations

import hashlib
import json
import os
import time

import pytest

from strategos.components.files import digests


@pytest.fixture
def memo(tmp_path):
    return tmp_path / "memo.json"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that was written long enough ago to cache its digest."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    later = time.time() + 60
    monkeypatch.setattr(digests.time, "time", lambda: later)
    return path


def of(path, memo):
    (digest,) = digests.digests([str(path)], memo)
    return digest


def edit_in_place(path, text):
    """Writes the same number of bytes and restores the modification time."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_digest_is_that_of_sha256(file, memo):
    assert of(file, memo) == hashlib.sha256(file.read_bytes()).hexdigest()


def test_known_file_is_not_read_again(file, memo, monkeypatch):
    first = of(file, memo)
    monkeypatch.setattr(digests, "_hash", lambda path: pytest.fail("hashed"))
    assert of(file, memo) == first


def test_edit_that_keeps_size_and_time_is_seen(file, memo):
    first = of(file, memo)
    edit_in_place(file, "a,b\n9,9\n")
    assert of(file, memo) != first


def test_file_that_was_just_written_is_not_remembered(file, memo, monkeypatch):
    monkeypatch.undo()  # now, not a minute later
    of(file, memo)
    assert json.loads(memo.read_text()) == {}


def test_copy_and_touch_change_nothing(file, memo):
    first = of(file, memo)
    os.utime(file, (1, 1))
    assert of(file, memo) == first


@pytest.mark.parametrize("content", ["", "[]", '{"/a": 1}', '{"/a": []}', "\xff{"])
def test_memo_that_is_broken_is_written_anew(file, memo, content):
    memo.write_text(content, encoding="latin1")
    first = of(file, memo)
    assert list(json.loads(memo.read_text())) == [str(file)]
    assert of(file, memo) == first


def test_removed_files_are_forgotten(file, memo, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("x")
    of(other, memo)
    other.unlink()
    of(file, memo)
    assert list(json.loads(memo.read_text())) == [str(file)]


def test_without_a_folder_for_it_nothing_is_remembered(file, tmp_path):
    assert of(file, tmp_path / "none" / "memo") == of(file, None)
    assert not (tmp_path / "none").exists()
