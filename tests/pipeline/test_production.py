from __future__ import annotations

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline import production


@pytest.fixture
def store():
    config = mlmd.ConnectionConfig()
    config.fake_database.SetInParent()
    return ml_metadata.MetadataStore(config)


def push(store, folder, candidate="c", baseline=""):
    folder.mkdir(parents=True)
    type_id = store.put_artifact_type(mlmd.ArtifactType(name="PushedModel"))
    artifact = mlmd.Artifact(type_id=type_id, uri=str(folder))
    for key, value in (
        ("pushed_destination", str(folder)),
        ("candidate", candidate),
        ("baseline", baseline),
    ):
        artifact.custom_properties[key].string_value = value
    store.put_artifacts([artifact])
    return str(folder)


def test_production_is_the_newest_version_whose_folder_exists(store, tmp_path):
    old = push(store, tmp_path / "serving" / "9")
    push(store, tmp_path / "serving" / "10")
    push(store, tmp_path / "elsewhere" / "11")
    destination = str(tmp_path / "serving")
    assert production.newest(store, destination).version == 10
    (tmp_path / "serving" / "10").rmdir()
    assert production.newest(store, destination).path == old


def test_nothing_pushed_means_no_baseline(store, tmp_path):
    assert production.newest(store, str(tmp_path)) is None
    assert production.baseline(None, "c", fresh=False) == "none"


def test_new_candidate_is_compared_with_the_model_in_production():
    serving = production.Production("/s/2", 2, candidate="old", baseline="/s/1")
    assert production.baseline(serving, "new", fresh=False) == "/s/2"


def test_unchanged_run_keeps_the_baseline_of_the_model_in_production():
    serving = production.Production("/s/2", 2, candidate="same", baseline="/s/1")
    assert production.baseline(serving, "same", fresh=False) == "/s/1"
    assert production.baseline(serving, "same", fresh=True) == "/s/2"
