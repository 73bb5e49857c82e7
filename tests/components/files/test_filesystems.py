"""The supported remote file systems, and the errors for the others."""

from __future__ import annotations

import socket

import pytest

from strategos.components.errors import BadInputError
from strategos.components.files import filesystems, object_stores


@pytest.mark.parametrize("uri", ["/a/b", "runs", "gs://bucket/a", "s3://bucket/a"])
def test_paths_and_both_stores_are_known(uri):
    assert filesystems.unknown(uri) is None


def test_unknown_scheme_is_refused_by_name():
    expected = "ftp:// is not known; use gs://, s3:// or a folder"
    assert filesystems.unknown("ftp://x") == expected


def test_bucket_is_tried(bucket):
    object_stores.check_writable(f"{bucket}/root")
    with pytest.raises(BadInputError, match="nothing can be written there") as error:
        object_stores.check_writable("s3://other/root")
    assert "AWS_ACCESS_KEY_ID" in str(error.value)


def test_s3_that_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "anyone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("S3_ENDPOINT", f"http://127.0.0.1:{port}")
        with pytest.raises(BadInputError, match="written there: no answer in 0.2 s"):
            object_stores.check_writable("s3://silent/b", 0.2)


@pytest.mark.long
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
