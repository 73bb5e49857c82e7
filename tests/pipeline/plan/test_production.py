from __future__ import annotations

import json

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.plan import production


@pytest.fixture
def store():
    config = mlmd.ConnectionConfig()
    config.fake_database.SetInParent()
    return ml_metadata.MetadataStore(config)


def put(store, kind, uri, **properties):
    type_id = store.put_artifact_type(mlmd.ArtifactType(name=kind))
    artifact = mlmd.Artifact(type_id=type_id, uri=str(uri))
    for key, value in properties.items():
        artifact.custom_properties[key].string_value = value
    return store.put_artifacts([artifact])[0]


def push(store, folder, candidate="c", baseline="", warm_start="none"):
    """Records the outputs of Trainer and Pusher; the model is beside the version."""
    folder.mkdir(parents=True)
    model = put(store, "Model", f"{folder}-model", warm_start=warm_start)
    blessing = put(store, "InfraBlessing", folder)
    pushed = put(
        store,
        "PushedModel",
        folder,
        pushed_destination=str(folder),
        candidate=candidate,
        baseline=baseline,
    )
    kind = store.put_execution_type(mlmd.ExecutionType(name="Pusher"))
    (execution,) = store.put_executions([mlmd.Execution(type_id=kind)])
    roles = [(blessing, "INPUT"), (model, "INPUT"), (pushed, "OUTPUT")]
    store.put_events(
        [
            mlmd.Event(
                artifact_id=artifact,
                execution_id=execution,
                type=mlmd.Event.Type.Value(role),
            )
            for artifact, role in roles
        ]
    )
    return str(folder)


def test_production_is_the_newest_version_whose_folder_exists(store, tmp_path):
    old = push(store, tmp_path / "serving" / "9")
    push(store, tmp_path / "serving" / "10")
    push(store, tmp_path / "elsewhere" / "11")
    destination = str(tmp_path / "serving")
    assert production.newest(store, destination).version == 10
    (tmp_path / "serving" / "10").rmdir()
    assert production.newest(store, destination).path == old


def test_a_version_that_ml_metadata_does_not_know_is_the_model_in_production(
    store, tmp_path
):
    serving = tmp_path / "serving"
    push(store, serving / "9")
    (serving / "11").mkdir()  # no server would load an empty folder
    assert production.newest(store, str(serving)).version == 9
    (serving / "11" / "saved_model.pb").touch()
    found = production.newest(store, str(serving))
    assert (found.path, found.artifact) == (str(serving / "11"), 0)
    assert production.baseline(found, "c", fresh=False) == str(serving / "11")


def test_a_push_without_its_record_is_known_by_its_manifest(store, tmp_path):
    push(store, tmp_path / "1")
    version = tmp_path / "2"
    (version / "assets.extra").mkdir(parents=True)
    (version / "saved_model.pb").touch()
    model = put(store, "Model", "/runs/Trainer/model/5")
    about = {"run_id": "r5", "fingerprint": "c", "baseline": "/s/1", "model": model}
    (version / "assets.extra" / "manifest.json").write_text(json.dumps(about))
    found = production.newest(store, str(tmp_path))
    assert (found.version, found.candidate, found.model) == (2, "", 0)  # not our run
    kind = store.put_context_type(mlmd.ContextType(name="pipeline_run"))
    store.put_contexts([mlmd.Context(type_id=kind, name="r5")])
    found = production.newest(store, str(tmp_path))
    assert production.baseline(found, "c", fresh=False) == "/s/1"
    weights = production.warm_start(store, found, "new", fresh=False)
    assert weights == "/runs/Trainer/model/5/Format-Weights"


def test_a_serving_folder_is_the_same_under_another_name(store, tmp_path):
    path = push(store, tmp_path / "disk" / "serving" / "9")
    (tmp_path / "srv").symlink_to(tmp_path / "disk")
    found = production.newest(store, str(tmp_path / "srv" / "serving"))
    assert (found.path, found.candidate) == (path, "c")


def test_every_third_model_starts_from_fresh_weights(store, tmp_path):
    starts, weights = [], "none"
    for version in range(1, 8):
        folder = push(store, tmp_path / "s" / str(version), "old", warm_start=weights)
        serving = production.newest(store, str(tmp_path / "s"))
        weights = production.warm_start(store, serving, "new", fresh=False, every=3)
        starts.append(weights == "none")
        assert starts[-1] or weights == f"{folder}-model/Format-Weights"
    assert starts == [False, False, True, False, False, True, False]
    always = production.warm_start(store, serving, "new", fresh=False, every=1)
    assert always == "none"


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


def test_training_starts_from_the_weights_behind_the_model_in_production(
    store, tmp_path
):
    push(store, tmp_path / "serving" / "1", candidate="old")
    path = push(store, tmp_path / "serving" / "2", candidate="old")
    serving = production.newest(store, str(tmp_path / "serving"))
    found = production.warm_start(store, serving, "new", fresh=False)
    assert found == f"{path}-model/Format-Weights"


def test_unchanged_run_keeps_the_start_of_the_model_in_production(store, tmp_path):
    first = push(store, tmp_path / "serving" / "1", "same", warm_start="/m/Format-W")
    serving = production.newest(store, str(tmp_path / "serving"))
    assert production.warm_start(store, serving, "same", fresh=False) == "/m/Format-W"
    found = production.warm_start(store, serving, "same", fresh=True)
    assert found == f"{first}-model/Format-Weights"


def test_nothing_pushed_means_a_start_from_fresh_weights(store):
    assert production.warm_start(store, None, "c", fresh=False) == "none"
