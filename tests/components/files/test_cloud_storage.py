"""What TensorFlow, Arrow, Beam and Google's client do with a Cloud Storage."""

from __future__ import annotations

import contextlib

import pytest

from strategos.components.errors import BadInputError
from strategos.components.files import listing, object_stores

CLIENTS = """
import json, os
import tensorflow as tf
from apache_beam.io.filesystems import FileSystems
from google.cloud import storage as google
from tfx.dsl.io import fileio
from strategos.components.files import listing, storage

filesystem = tf.io.gfile
bucket = google.Client().bucket("bucket")
content = os.urandom(9_000_001)  # more than a part of any client's upload

def write(file):
    with file as out:
        out.write(content)

def upload(url):
    with open("part", "wb") as out:
        out.write(content)
    storage.put("part", url)

def read(file):
    with file as source:
        return source.read()

writers = {
    "tensorflow": lambda url: write(filesystem.GFile(url, "wb")),
    "arrow": upload,
    "beam": lambda url: write(FileSystems.create(url)),
    "tfx": lambda url: write(fileio.open(url, "wb")),
    "google": lambda url: bucket.blob(url[12:]).upload_from_string(content),
}
readers = {
    "tensorflow": lambda url: read(filesystem.GFile(url, "rb")),
    "arrow": storage.read,
    "beam": lambda url: read(FileSystems.open(url)),
    "tfx": lambda url: read(fileio.open(url, "rb")),
    "google": lambda url: bucket.blob(url[12:]).download_as_bytes(),
}
different, names = [], [f"{name}.bin" for name in sorted(writers)]
for writer, make in writers.items():
    url = f"gs://bucket/a/b/{writer}.bin"
    make(url)
    different += [(writer, r) for r, see in readers.items() if see(url) != content]
lists = {
    "tensorflow": filesystem.listdir("gs://bucket/a/b"),
    "tfx": fileio.listdir("gs://bucket/a/b"),
    "arrow": [url[len("gs://bucket/a/b/"):] for url in listing.below("gs://bucket")[0]],
}
wrong = {who: found for who, found in lists.items() if sorted(found) != names}
filesystem.rmtree("gs://bucket/a")
print(json.dumps([different, wrong, listing.below("gs://bucket")]))
"""


def test_what_one_client_writes_all_others_read(
    cloud_storage, warm_tfx, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert warm_tfx.script(CLIENTS).answer() == [[], {}, [[], []]]


def test_folders_are_parts_of_names(cloud_storage):
    client = cloud_storage.client()
    names = ("a", "x/y/b", "x/.hidden/c", ".d/e", "x/y/.f", "z/", "x//g")
    for name in names:
        client.put_object(Bucket="bucket", Key=f"below/{name}", Body=b"1")

    def below(depth):
        files, folders = listing.below("gs://bucket/below", depth)
        return [
            [url[len("gs://bucket/below/") :] for url in u] for u in (files, folders)
        ]

    assert below(0) == [["a"], ["x", "z"]]
    assert below(1)[0] == ["a"]
    assert {"x", "x/y", "z"} <= {*below(1)[1]}
    assert below(None)[0] == ["a", "x//g", "x/y/b"]


@pytest.mark.long
@pytest.mark.parametrize("reason", ["bucket", "rejected", "server", "credentials"])
def test_root_that_cannot_be_written_is_one_message_in_some_seconds(
    cloud_storage, monkeypatch, tmp_path, reason
):
    url = f"gs://{'absent' if reason == 'bucket' else 'bucket'}/{reason}"
    outages = {"rejected": cloud_storage.rejecting(403), "server": cloud_storage.away()}
    outage = outages.get(reason, contextlib.nullcontext())
    if reason == "credentials":
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
        monkeypatch.setenv("HOME", str(tmp_path))
    with outage, pytest.raises(BadInputError) as error:
        object_stores.check_writable(url, 15)
    message = str(error.value)
    assert message.startswith(f"run.root: received {url}; nothing can be written")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in message
    assert "no answer in" not in message
