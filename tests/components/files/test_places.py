"""The same on local folders and on an object store.

TensorFlow's S3 may crash a process that ends in the usual way, so it gets its own.
"""

from __future__ import annotations

import json

import pytest

from strategos.components.files import filesystems, places

_CODE = """
import runpy, sys
print(runpy.run_path(sys.argv[1])["used"](sys.argv[2]))
"""


def used(path):
    """What comes of a folder's files, as JSON."""
    folder, found = places.at(path), {}
    found["before"] = [folder.exists(), [*map(str, folder.glob("*"))]]
    try:
        (folder / "1.json").read_text()
    except FileNotFoundError:
        found["missing"] = True
    for number in (2, 1):
        (folder / "jobs").mkdir(parents=True, exist_ok=True)
        places.replace_text(folder / "jobs" / f"{number}.json", "old")
        places.replace_text(folder / "jobs" / f"{number}.json", f"new {number}")
    files = sorted((folder / "jobs").glob("[0-9]*.json"))
    found["files"] = {str(each)[len(path) :]: each.read_text() for each in files}
    found["names"] = [each.name for each in (*files, *folder.glob("*"))]
    places.remove(folder)
    places.remove(folder)
    found["after"] = (folder / "jobs" / "1.json").exists()
    return json.dumps(found)


@pytest.mark.parametrize(
    "kind", ["local", pytest.param("remote", marks=pytest.mark.faults)]
)
def test_files_of_a_folder_are_written_found_and_removed(kind, tmp_path, request):
    if kind == "local":
        found = json.loads(used(str(tmp_path / "folder")))
    else:
        problem = filesystems.missing("s3://bucket")
        if problem:
            pytest.skip(problem)
        bucket = request.getfixturevalue("bucket")
        warm = request.getfixturevalue("warm_tensorflow")
        found = warm.script(_CODE, __file__, f"{bucket}/folder").answer()
    assert found == {
        "before": [False, []],
        "missing": True,
        "files": {"/jobs/1.json": "new 1", "/jobs/2.json": "new 2"},
        "names": ["1.json", "2.json", "jobs"],
        "after": False,
    }
