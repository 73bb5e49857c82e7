"""The same on local folders and on an object store."""

from __future__ import annotations

import pytest

from strategos.components.errors import UserError
from strategos.components.files import places, storage


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


def used(path):
    """What comes of a folder's files."""
    folder, found = places.at(path), {}
    found["before"] = [folder.exists(), [*map(str, folder.glob("*"))]]
    try:
        (folder / "1.json").read_text()
    except FileNotFoundError:
        found["missing"] = True
    for number in (2, 1):
        (folder / "jobs").mkdir(parents=True, exist_ok=True)
        storage.write(str(folder / "jobs" / f"{number}.json"), "old")
        storage.write(str(folder / "jobs" / f"{number}.json"), f"new {number}")
    files = sorted((folder / "jobs").glob("[0-9]*.json"))
    found["files"] = {str(each)[len(path) :]: each.read_text() for each in files}
    found["names"] = [each.name for each in (*files, *folder.glob("*"))]
    places.remove(folder)
    places.remove(folder)
    found["after"] = (folder / "jobs" / "1.json").exists()
    return found


def test_files_of_a_folder_are_written_found_and_removed(tmp_path, bucket):
    assert (
        used(f"{bucket}/folder")
        == used(str(tmp_path / "folder"))
        == {
            "before": [False, []],
            "missing": True,
            "files": {"/jobs/1.json": "new 1", "/jobs/2.json": "new 2"},
            "names": ["1.json", "2.json", "jobs"],
            "after": False,
        }
    )


def test_object_that_stands_for_a_folder_is_no_file_in_it(bucket, bucket_client):
    for key in ("marked/", "marked/inside/", "marked/inside/file"):
        bucket_client.put_object(Bucket="bucket", Key=key)
    folder = places.at(f"{bucket}/marked")
    assert folder.exists()
    assert [each.name for each in folder.glob("*")] == ["inside"]


def test_other_object_stores_are_rejected_by_name():
    with pytest.raises(UserError, match="ftp:// is not known; use gs://, s3://"):
        places.at("ftp://host/folder")
