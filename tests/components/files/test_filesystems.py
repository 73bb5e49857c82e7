"""The supported remote file systems, and the errors for the others."""

from __future__ import annotations

import importlib.util
import socket
import sys

import pytest

from strategos.components.errors import BadInputError, UserError
from strategos.components.files import filesystems, object_stores


@pytest.mark.parametrize("uri", ["/a/b", "runs", "gs://bucket/a"])
def test_paths_and_what_tensorflow_knows_need_nothing(uri):
    assert filesystems.missing(uri) is None
    filesystems.register(uri)


def test_unknown_scheme_is_refused_by_name():
    with pytest.raises(UserError, match="ftp://x: ftp:// is not known; use gs://"):
        filesystems.register("ftp://x")


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="there is none for this Python")
def test_missing_s3_names_the_extra_to_install(monkeypatch):
    assert not filesystems.needs_copies("s3://bucket/root")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "strategos[s3]" in filesystems.missing("s3://bucket")
    assert filesystems.needs_copies("s3://bucket/root")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TensorFlow opens S3 there")
def test_tensorflow_cannot_open_s3_on_the_newer_stack():
    assert "Python 3.10" in filesystems.missing("s3://bucket")
    assert filesystems.needs_copies("s3://bucket/root")


MARKERS = """
import json

from strategos.components.files import filesystems, object_stores

filesystems.register_in_worker()
filesystems.remove_markers("s3://bucket/run")
filesystems.remove_markers("s3://bucket/missing")
print(json.dumps(filesystems.registered()))
"""


@pytest.mark.skipif(sys.version_info >= (3, 11), reason="TensorFlow opens no s3://")
def test_objects_that_stand_for_folders_are_removed(bucket_client, warm_tfx):
    for key in ("run/", "run/a/", "run/a/file", "run/b/c/file", "runs/"):
        bucket_client.put_object(Bucket="bucket", Key=key, Body=b"")
    registered = {filesystems.REGISTERED: "s3"}
    assert warm_tfx.script(MARKERS, **registered).answer() == registered
    left = bucket_client.list_objects_v2(Bucket="bucket")["Contents"]
    assert [each["Key"] for each in left] == ["run/a/file", "run/b/c/file", "runs/"]


def test_worker_without_a_file_system_starts(no_tensorflow_io):
    filesystems.register_in_worker({})
    filesystems.register_in_worker({filesystems.REGISTERED: "s3,gs"})


def test_beam_uses_the_server_of_tensorflow():
    environ = {"S3_ENDPOINT": "http://a:1", "AWS_REGION": "b"}
    filesystems._set_up_boto3(environ)
    assert environ["AWS_ENDPOINT_URL_S3"] == "http://a:1"
    assert environ["AWS_DEFAULT_REGION"] == "b"
    other = {"S3_ENDPOINT": "http://a:1", "AWS_ENDPOINT_URL_S3": "http://b:2"}
    filesystems._set_up_boto3(other)
    assert other["AWS_ENDPOINT_URL_S3"] == "http://b:2"


def test_only_s3_is_copied():
    assert not filesystems.needs_copies("gs://bucket/root")
    assert not filesystems.needs_copies("/data/s3")


@pytest.fixture
def no_tensorflow_io(monkeypatch):
    """As where TensorFlow cannot open S3."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_bucket_is_tried_without_tensorflow(no_tensorflow_io, bucket):
    object_stores.check_writable(f"{bucket}/root")
    with pytest.raises(BadInputError, match="nothing can be written there") as error:
        object_stores.check_writable("s3://other/root")
    assert "AWS_ACCESS_KEY_ID" in str(error.value)


def test_s3_that_does_not_answer_is_not_waited_for(no_tensorflow_io, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("S3_ENDPOINT", f"http://127.0.0.1:{port}")
        with pytest.raises(BadInputError, match="written there: no answer in 0.2 s"):
            object_stores.check_writable("s3://silent/b", 0.2)


def test_bucket_that_cannot_be_written_is_named_with_what_credentials_it_needs():
    with pytest.raises(BadInputError) as error:
        object_stores.check_writable("gs://strategos-has-no-such-bucket/a")
    message = str(error.value)
    assert message.startswith("run.root: received gs://strategos-has-no-such-bucket/a")
    assert "nothing can be written there: " in message
    assert "GOOGLE_APPLICATION_CREDENTIALS" in message
    assert object_stores.check_writable("/a/path/is/checked/elsewhere") is None


def test_bucket_that_does_not_answer_is_not_waited_for(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        with pytest.raises(BadInputError, match="written there: no answer in 0.2 s"):
            object_stores.check_writable("gs://strategos-has-no-such-bucket/b", 0.2)
