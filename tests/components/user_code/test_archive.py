"""Archives of the user's modules, by a real S3 server."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.files import filesystems
from strategos.components.user_code import archive, fingerprint, workload_paths

KEY = "kubeflow.modules"
FILES = {
    "w/model.py": "import layers\nfrom lib.deep import x\nimport common\n"
    "WORDS = open('assets/words.txt')\n",
    "w/layers.py": "SHARED = '../shared/names.txt'\n",
    "w/lib/__init__.py": "",
    "w/lib/deep.py": "from . import sibling\nx = 'table.json'\n",
    "w/lib/sibling.py": "",
    "w/lib/table.json": "{}",
    "w/lib/unused.py": "",
    "w/assets/words.txt": "one two",
    "w/notes.txt": "",
    "shared/names.txt": "three",
    "path/common.py": "",
}
PACKED = (
    *("w/model.py", "w/layers.py", "w/lib/__init__.py", "w/lib/deep.py"),
    *("w/lib/sibling.py", "w/lib/table.json", "w/assets/words.txt"),
    *("shared/names.txt", "w/common.py"),
)
READ = """
import json, sys
sys.path.insert(0, sys.argv[1])
import os
os.chdir(sys.argv[1])
import model
print(json.dumps([model.WORDS.read(), model.x, open(model.layers.SHARED).read()]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A workload's folder, beside another one and one on the import path."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    return str(tmp_path / "w")


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def store(bucket):
    """store of the folder of archives."""
    return f"{bucket}/modules"


@pytest.fixture
def objects(bucket_client):
    """The objects in the bucket, each with the time of its last change; none at first.

    `objects()` lists them.
    """

    def found():
        listed = bucket_client.list_objects_v2(Bucket="bucket").get("Contents", ())
        return {each["Key"]: each["LastModified"] for each in listed}

    for name in found():
        bucket_client.delete_object(Bucket="bucket", Key=name)
    return found


def key_of(url):
    return url.partition("://bucket/")[2]


def test_it_holds_what_the_fingerprint_covers(folder, tmp_path):
    file = archive.pack(folder, "model", tmp_path)
    assert sorted(zipfile.ZipFile(file).namelist()) == sorted(PACKED)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert file.name == f"model-{digest[:32]}.zip"


def test_same_files_make_the_same_archive_elsewhere(folder, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    file = archive.pack(folder, "model", tmp_path / "out")
    before = fingerprint.fingerprint(folder, "model")
    elsewhere = tmp_path / "elsewhere"
    for name in PACKED:
        source = {"w/common.py": "path/common.py"}.get(name, name)
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_bytes((tmp_path / source).read_bytes())
    (elsewhere / "w" / "unrelated.py").write_text("")
    again = archive.pack(str(elsewhere / "w"), "model", tmp_path)
    assert again.read_bytes() == file.read_bytes()
    assert fingerprint.fingerprint(str(elsewhere / "w"), "model") == before
    (elsewhere / "w" / "lib" / "table.json").write_text("[]")
    assert archive.pack(str(elsewhere / "w"), "model", tmp_path).name != file.name


def test_all_pythons_make_the_same_archive(tmp_path):
    (tmp_path / "model.py").write_text("import émile\n")
    (tmp_path / "émile.py").write_text("A = 1\n")
    file = archive.pack(str(tmp_path), "model", tmp_path)
    assert file.name == "model-d75c10fa1cc7f7de3e27a5fbc6ae015c.zip"


def test_what_was_downloaded_is_what_was_uploaded_once(
    folder, store, objects, tmp_path
):
    url = archive.upload(folder, "model", f"{store}/", KEY)
    stored = objects()
    assert [*stored] == [key_of(url)]
    assert archive.upload(folder, "model", store, KEY) == url
    assert objects() == stored
    found = archive.download(url, tmp_path, KEY)
    assert Path(found).name == "w"
    assert fingerprint.fingerprint(found, "model") == fingerprint.fingerprint(
        folder, "model"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", READ, found], capture_output=True, check=True
    )
    assert json.loads(done.stdout) == ["one two", "table.json", "three"]
    (Path(folder) / "layers.py").write_text("SHARED = ''\n")
    assert archive.upload(folder, "model", store, KEY) != url
    assert len(objects()) == 2


def test_installed_module_needs_no_files(tmp_path, store, objects):
    url = archive.upload(str(tmp_path), "json.tool", store, KEY)
    assert Path(archive.download(url, tmp_path, KEY)).is_dir()


@pytest.mark.parametrize("content", [b"", b"PK other", None])
def test_other_content_is_one_message_and_is_replaced(
    folder, store, objects, bucket_client, tmp_path, content
):
    url = archive.upload(folder, "model", store, KEY)
    at = {"Bucket": "bucket", "Key": key_of(url)}
    stored = bucket_client.get_object(**at)["Body"].read()
    if content is None:  # of the same size
        content = stored.replace(b"one two", b"one six")
    bucket_client.put_object(**at, Body=content)
    with pytest.raises(UserError, match="differs from the hash in the name") as raised:
        archive.download(url, tmp_path, KEY)
    assert url in str(raised.value) and raised.value.key == KEY
    if len(content) == len(stored):  # as the remedy says
        bucket_client.delete_object(**at)
    assert archive.upload(folder, "model", store, KEY) == url
    assert bucket_client.get_object(**at)["Body"].read() == stored


def test_deleted_archive_is_one_message(
    folder, store, objects, bucket_client, tmp_path
):
    url = archive.upload(folder, "model", store, KEY)
    bucket_client.delete_object(Bucket="bucket", Key=key_of(url))
    with pytest.raises(UserError, match="object not found") as raised:
        archive.download(url, tmp_path, KEY)
    assert url in str(raised.value) and raised.value.key == KEY
    assert "Compile or submit the pipeline again" in str(raised.value)


@pytest.mark.parametrize(
    "reason", ["bucket", pytest.param("endpoint", marks=pytest.mark.long)]
)
def test_store_that_does_not_answer_is_one_message(
    folder, store, object_store, request, monkeypatch, tmp_path, reason
):
    url, outage = store, contextlib.nullcontext
    if reason == "bucket":
        url = f"{object_store}://absent/modules"
    elif object_store == "gs":
        cloud_storage = request.getfixturevalue("cloud_storage")
        outage = functools.partial(cloud_storage.rejecting, 403)
    else:
        monkeypatch.setenv("S3_ENDPOINT", "http://127.0.0.1:9")
    with outage(), pytest.raises(UserError, match="nothing can be written") as raised:
        archive.upload(folder, "model", url, KEY)
    assert raised.value.key == KEY and url in str(raised.value)
    assert filesystems.credentials(url) in str(raised.value)
    if reason == "endpoint":
        with outage(), pytest.raises(UserError, match="nothing can be read") as raised:
            archive.download(f"{url}/model-0.zip", tmp_path, KEY)
        assert raised.value.key == KEY


def test_step_uses_its_archive_and_not_the_image(folder, store, objects, monkeypatch):
    url = archive.upload(folder, "model", store, KEY)
    monkeypatch.setenv(workload_paths.VARIABLE, "{}")
    parameter = json.dumps({"folder": "/workload", "module": "model"})
    with archive.of_step("kubeflow"):
        assert workload_paths.user_module(parameter) == ("/workload", "model")
    monkeypatch.setenv(archive.VARIABLE, url)
    with archive.of_step("kubeflow"):
        found, module = workload_paths.user_module(parameter)
        assert module == "model" and Path(found, "lib", "sibling.py").is_file()
    assert not Path(found).exists()
