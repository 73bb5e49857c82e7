"""Copies of files in an object store, byte by byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from strategos.components.files import arrow_files

CONTENT = {"part.gz": gzip.compress(b"rows"), "inside/plain": b"text", "empty": b""}


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    """A folder with files of this content."""
    for name, content in CONTENT.items():
        file = tmp_path / "folder" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "folder"


def test_objects_are_the_files_and_files_the_objects(
    folder, bucket, bucket_client, tmp_path
):
    arrow_files.upload(str(folder), f"{bucket}/copy/")
    for name, content in CONTENT.items():
        stored = bucket_client.get_object(Bucket="bucket", Key=f"copy/{name}")
        assert stored["Body"].read() == content, name
    arrow_files.download(f"{bucket}/copy", str(tmp_path / "all"))
    arrow_files.download(f"{bucket}/copy/part.gz", str(tmp_path / "one" / "file"))
    for name, content in CONTENT.items():
        assert Path(tmp_path, "all", name).read_bytes() == content, name
    assert Path(tmp_path, "one", "file").read_bytes() == CONTENT["part.gz"]


def test_missing_objects_are_an_error(bucket, tmp_path):
    with pytest.raises(FileNotFoundError):
        arrow_files.download(f"{bucket}/absent", str(tmp_path / "absent"))


def test_file_that_is_named_last_is_uploaded_last(folder, bucket, monkeypatch):
    sent = []
    monkeypatch.setattr(arrow_files, "upload_file", lambda _, uri: sent.append(uri))
    arrow_files.upload(str(folder), f"{bucket}/copy", last="part.gz")
    assert sent.index(f"{bucket}/copy/part.gz") == len(CONTENT) - 1
