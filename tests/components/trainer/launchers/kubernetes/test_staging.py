"""Where pods find the files of a training: on volumes, in images, in object stores."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import LAUNCHERS
from strategos.components.trainer.launchers.jobs import staging

KEY = "trainer.distribution.kubernetes"


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture
def own(tmp_path):
    """Inputs of a training in a step's own container."""
    for name in ("graph/variables/data", "train.gz", "eval.gz", "schema.pbtxt"):
        file = tmp_path / "own" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "own"


@pytest.fixture
def spec(attempts, own):
    """A training with these inputs."""
    return dataclasses.replace(
        attempts().new().request()[0],
        train_files=(str(own / "train.gz"),),
        eval_files=(str(own / "eval.gz"),),
        transform_graph=str(own / "graph"),
        schema_file=str(own / "schema.pbtxt"),
        checkpoint_dir=str(own / "Trainer" / "checkpoints" / "a17"),
    )


@pytest.fixture
def keys(bucket_client):
    """The keys of all objects in the bucket that stand for no folder: `keys()`."""

    def found():
        listed = bucket_client.list_objects_v2(Bucket="bucket").get("Contents", ())
        return [each["Key"] for each in listed if not each["Key"].endswith("/")]

    return found


def test_files_that_no_pod_sees_are_copied_once(settings, spec, own, tmp_path):
    volume = tmp_path / "volume"
    claim = {"claim": "c", "path": str(volume)}
    mounted = settings | {"volumes": [claim], "folder": str(volume / "jobs")}
    spec = dataclasses.replace(
        spec,
        eval_files=(str(volume / "eval.gz"),),
        warm_start="s3://models/weights",
    )
    moved = staging.staged(spec, mounted, KEY)
    assert moved.eval_files == spec.eval_files
    assert moved.warm_start == spec.warm_start
    assert moved.model_dir == spec.model_dir
    assert moved.checkpoint_dir == str(volume / "jobs" / "a17" / "checkpoints")
    for path in (*moved.train_files, moved.transform_graph, moved.schema_file):
        assert path.startswith(str(volume / "jobs" / "a17"))
    graph = Path(moved.transform_graph, "variables", "data")
    assert graph.read_text() == "graph/variables/data"
    shutil.rmtree(own)
    assert staging.staged(spec, mounted, KEY) == moved
    staging.remove(spec, mounted)
    assert [*(volume / "jobs").iterdir()] == []
    assert staging.staged(spec, settings, KEY) == spec
    staging.remove(spec, settings)


def test_files_that_no_pod_sees_are_uploaded_once(
    keys, bucket, bucket_client, settings, spec, own
):
    store = settings | {"folder": f"{bucket}/jobs", "volumes": []}
    moved = staging.staged(spec, store, KEY)
    assert moved.checkpoint_dir == f"{bucket}/jobs/a17/checkpoints"
    assert moved.model_dir == spec.model_dir
    inputs = f"{bucket}/jobs/a17/inputs{own}"
    assert moved.train_files == (f"{inputs}/train.gz",)
    assert moved.transform_graph == f"{inputs}/graph"
    of_graph = f"jobs/a17/inputs{own}/graph/variables/data"
    (own / "train.gz").write_text("other")
    (own / "graph" / "variables" / "data").write_text("other")
    assert staging.staged(spec, store, KEY) == moved
    body = bucket_client.get_object(Bucket="bucket", Key=of_graph)["Body"]
    assert body.read() == b"graph/variables/data"
    (mark,) = [key for key in keys() if key.endswith("graph.complete")]
    bucket_client.delete_object(Bucket="bucket", Key=mark)  # as after a kill
    assert staging.staged(spec, store, KEY) == moved
    body = bucket_client.get_object(Bucket="bucket", Key=of_graph)["Body"]
    assert body.read() == b"other"
    staging.remove(spec, store)
    assert keys() == []


def test_root_in_an_object_store_keeps_its_checkpoints(
    keys, bucket, settings, spec, own
):
    trainer = f"{bucket}/runs/flights/Trainer"
    remote = dataclasses.replace(
        spec,
        train_files=(f"{trainer}/train.gz",),
        warm_start=str(own / "graph"),
        checkpoint_dir=f"{trainer}/checkpoints/a17",
    )
    moved = staging.staged(remote, settings, KEY)
    assert moved.checkpoint_dir == remote.checkpoint_dir
    assert moved.train_files == remote.train_files
    assert moved.warm_start == f"{trainer}/staged/a17/inputs{own}/graph"
    staging.remove(remote, settings)
    assert keys() == []


def test_object_store_that_cannot_be_written_is_one_message(
    keys, object_store, settings, spec
):
    with pytest.raises(UserError) as raised:
        staging.staged(
            spec, settings | {"folder": f"{object_store}://absent/jobs"}, KEY
        )
    assert raised.value.key == f"{KEY}.folder"
    assert f"received {object_store}://absent/jobs/a17" in str(raised.value)


def test_modules_are_where_the_image_has_them(spec):
    settings = {"context": "/home/me/flights", "workload": "/workload"}
    mine = dataclasses.replace(spec, folder="/home/me/flights/model")
    key = "kubeflow.modules"
    assert staging.in_image(mine, settings, key).folder == "/workload/model"
    in_step = dataclasses.replace(spec, folder="/workload/model")
    assert staging.in_image(in_step, settings, key) == in_step
    assert staging.in_image(mine, settings | {"context": None}, key) == mine


def test_root_is_in_an_object_store_or_on_a_volume_unless_files_are_copied(settings):
    check = LAUNCHERS["kubernetes"].check
    check("/mnt/root/runs", settings)
    check("gs://bucket/runs", settings)
    check("s3://bucket/runs", settings)
    check("/home/me", settings | {"folder": "gs://bucket/jobs"})
    check("/home/me", settings | {"folder": "/mnt/root/jobs"})
    with pytest.raises(UserError) as raised:
        check("/home/me", settings)
    assert raised.value.key == "run.root"
    assert "a folder below /mnt/root" in str(raised.value)
