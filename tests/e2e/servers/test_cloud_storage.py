"""A run whose data, schema, root and pushed models are on Google Cloud Storage."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from pathlib import Path

import pytest
import yaml

from strategos.components import node_ids
from strategos.pipeline.history import runs
from strategos.pipeline.remote import step_records

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def object_store():
    return "gs"


@pytest.fixture(scope="module")
def remote(
    bucket, bucket_client, mariadb, metadata_password, make_small, tmp_path_factory
):
    """The small workspace with all of its files in a bucket."""
    made = make_small(tmp_path_factory.mktemp("checkout"))
    for file in (*made.folder.rglob("*.csv"), made.folder.parent / "schema.pbtxt"):
        key = file.relative_to(made.folder.parent).as_posix()
        bucket_client.upload_file(str(file), "bucket", key)
        file.unlink()
    yaml = made.yaml.read_text()
    for here, there in (
        ("data/span-", f"{bucket}/small/data/span-"),
        ("../schema", f"{bucket}/schema"),
        ("serving/small", f"{bucket}/serving"),
    ):
        assert here in yaml
        yaml = yaml.replace(here, there)
    run = f"run: {{root: {bucket}/root, metadata: '{mariadb}'}}\n"
    made.yaml.write_text(yaml + run)
    return made


@pytest.fixture(scope="module")
def local(make_small, tmp_path_factory):
    """A run of the same workspace on this machine."""
    made = make_small(tmp_path_factory.mktemp("local"))
    made.run()
    return made


@pytest.fixture
def assert_is_the_local_model(local, bucket_client):
    def check(url):
        (version,) = local.serving()
        folder = Path(local.folder, "serving/small", version)
        files = sorted(folder.glob("variables/*"))
        assert len(files) == 2
        for file in files:
            key = f"{url.removeprefix('gs://bucket/')}/variables/{file.name}"
            stored = bucket_client.get_object(Bucket="bucket", Key=key)["Body"].read()
            assert stored == file.read_bytes()

    return check


def test_pushed_model_is_that_of_a_local_run(remote, local, assert_is_the_local_model):
    remote.run()
    done = remote.last_run()
    expected = local.last_run()["metrics"]  # MySQL keeps six digits
    assert done["metrics"] == pytest.approx(expected, abs=1e-6)
    (url, _) = done["pushed"]
    assert url.startswith("gs://bucket/serving/")
    assert_is_the_local_model(url)


def test_steps_without_modules_in_the_image_push_the_model_of_a_local_run(
    remote,
    local,
    bucket,
    bucket_client,
    kfp_launcher,
    assert_is_the_local_model,
    tmp_path,
):
    section = {
        **{"image": "x", "context": str(remote.folder.parent)},
        **{"root": f"{bucket}/kfp", "modules": f"{bucket}/modules"},
    }
    spec, image = tmp_path / "spec.yaml", tmp_path / "image"
    words = ("--set", f"kubeflow={json.dumps(section)}", "-o", str(spec))
    sets = ("--set", f"pusher.to={bucket}/steps")
    remote.strategos(
        *("compile", str(remote.yaml), "--target", "kubeflow"), *words, *sets
    )
    image.mkdir()  # and has no files of the workspace
    spec = next(yaml.safe_load_all(spec.read_text()))
    place = tmp_path / "cluster"
    launcher = kfp_launcher(spec, place, remote.warm, image, s3=bucket_client)
    launcher.run()
    pushed = launcher.artifacts["Pusher", "pushed_model"]
    assert pushed["uri"].startswith(f"{bucket}/kfp/")
    url = pushed["metadata"]["pushed_destination"]
    assert url.startswith(f"{bucket}/steps/")
    assert_is_the_local_model(url)
    table_has_what_the_steps_recorded(launcher, f"{bucket}/kfp", url, local)


def test_steps_of_vertex_push_the_model_of_a_local_run(
    remote,
    local,
    bucket,
    bucket_client,
    vertex_launcher,
    assert_is_the_local_model,
    tmp_path,
):
    section = {
        **{"project": "p", "region": "r", "image": "x", "root": f"{bucket}/vertex"},
        **{"context": str(remote.folder.parent), "modules": f"{bucket}/modules"},
    }
    written, image = tmp_path / "job.json", tmp_path / "image"
    words = ("--set", f"vertex={json.dumps(section)}", "-o", str(written))
    sets = ("--set", f"pusher.to={bucket}/of-vertex")
    remote.strategos("compile", str(remote.yaml), "--target", "vertex", *words, *sets)
    image.mkdir()  # and has no files of the workspace
    spec = json.loads(written.read_text())["pipelineSpec"]
    place = tmp_path / "cluster"
    launcher = vertex_launcher(spec, place, remote.warm, image, s3=bucket_client)
    launcher.run()
    pushed = launcher.artifacts["Pusher", "pushed_model"]
    assert pushed["uri"].startswith(f"{bucket}/vertex/")
    url = pushed["metadata"]["pushed_destination"]
    assert url.startswith(f"{bucket}/of-vertex/")
    assert_is_the_local_model(url)
    listed = bucket_client.list_objects_v2(Bucket="bucket", Prefix="vertex/")
    keys = [each["Key"] for each in listed["Contents"]]
    assert any(key.endswith("/Trainer/record/record.json") for key in keys)
    assert not [key for key in keys if "/checkpoints/" in key]


def table_has_what_the_steps_recorded(launcher, root, url, local):
    named = (name for name, _ in launcher.artifacts)
    nodes = dict.fromkeys(x for x in named if x in node_ids.ALL)
    # As if all but the last steps had come from the cache: their inputs lead there.
    ran = ("Evaluator", "InfraValidator", "Pusher")
    states = {name: "complete" if name in ran else "cached" for name in nodes}
    told = runs.Run(
        *("run-1", launcher.spec["pipelineInfo"]["name"], 0.0, 9.0, "blessed"),
        nodes=tuple(runs.NodeRun(*each) for each in states.items()),
        runner="kubeflow",
    )
    found, here = step_records.add_to(told, root), local.last_run()
    assert found.metrics == pytest.approx(here["metrics"])
    assert (found.blessed, found.pushed[0]) == (True, url)
    assert found.trainer["history"] == here["trainer"]["history"]
    assert found.types == here["types"]
    assert found.summary["overall"] == found.metrics
    kept = [node for node, _ in found.warnings]
    assert kept == [node for node, _ in here["warnings"]]
    rows = {node["name"]: node["rows"] for node in here["nodes"]}
    assert {node.name: node.rows for node in found.nodes} == rows
    # As if the cache had all steps of another run, but the one that is never cached.
    launcher.run("Resolve")
    states = dict.fromkeys(nodes, "cached") | {"Resolve": "complete"}
    again = tuple(runs.NodeRun(*each) for each in states.items())
    told = dataclasses.replace(told, run_id="run-2", nodes=again)
    assert step_records.add_to(told, root).pushed == found.pushed
    listed = step_records.history(root, told.pipeline)
    assert {run.run_id: run.outcome for run in listed} == {
        "run-1": "blessed",
        "run-2": "unfinished",
    }
    assert listed[1].metrics == found.metrics


def test_unchanged_run_is_cached_as_a_whole(remote):
    remote.run()
    assert set(remote.states().values()) == {"cached"}


@pytest.mark.faults
def test_store_that_is_away_for_seconds_is_waited_for(remote, cloud_storage):
    with contextlib.ExitStack() as outage:
        with remote.held("Trainer"):
            run = remote.start("--set", "trainer.epochs=3", node="Trainer")
            remote.wait_for_event("epoch 1/")
            outage.enter_context(cloud_storage.away())
        time.sleep(5)  # the training goes on
    said, _ = run.communicate(timeout=120)
    assert cloud_storage.missed() > 0
    assert run.returncode == 0, said
    assert "Traceback" not in said
    assert remote.last_run()["outcome"] == "blessed"
