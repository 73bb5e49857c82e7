"""Object stores for TFX's Launcher, without TensorFlow."""

from __future__ import annotations

import pytest
from tfx.dsl.io import filesystem

from strategos.components.errors import UserError
from strategos.pipeline.runners.remote_root.tfx_filesystem import ObjectStores


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def folder(bucket, bucket_client, request):
    """A folder with two folders, one of which is empty; and what puts objects there."""
    url = f"{bucket}/{request.node.name}"
    ObjectStores.makedirs(f"{url}/node/1")
    ObjectStores.mkdir(f"{url}/node/2")
    key = f"{request.node.name}/node/1/file"
    bucket_client.put_object(Bucket="bucket", Key=key, Body=b"content")
    return f"{url}/node"


def test_empty_folders_exist(folder):
    found = [f"{folder}/1", f"{folder}/1/file", f"{folder}/2", f"{folder}/2/"]
    assert all(map(ObjectStores.exists, found)) and not ObjectStores.exists(
        f"{folder}/3"
    )
    assert list(map(ObjectStores.isdir, found)) == [True, False, True, True]
    assert sorted(ObjectStores.listdir(folder)) == ["1", "2"]
    assert ObjectStores.listdir(f"{folder}/3") == []


def test_patterns_fit_files_and_folders(folder):
    assert sorted(ObjectStores.glob(f"{folder}/*")) == [f"{folder}/1", f"{folder}/2"]
    assert ObjectStores.glob(f"{folder}/*/fi*") == [f"{folder}/1/file"]
    assert ObjectStores.glob(f"{folder}/3/*") == []


def test_what_is_removed_is_gone_and_what_is_missing_is_what_tfx_catches(folder):
    ObjectStores.remove(f"{folder}/1/file")
    assert not ObjectStores.exists(f"{folder}/1/file") and ObjectStores.exists(
        f"{folder}/1"
    )
    ObjectStores.rmtree(f"{folder}/2")
    assert ObjectStores.glob(f"{folder}/*") == [f"{folder}/1"]
    with pytest.raises(filesystem.NotFoundError):
        ObjectStores.rmtree(f"{folder}/2")


@pytest.mark.parametrize("object_store", ["s3"], indirect=True)
def test_missing_bucket_is_named_with_what_to_check(bucket):
    with pytest.raises(
        UserError, match="s3://other/a: nothing can be written"
    ) as error:
        ObjectStores.makedirs("s3://other/a")
    assert error.value.key == "run.root" and "AWS_ACCESS_KEY_ID" in str(error.value)
