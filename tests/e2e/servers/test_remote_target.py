"""Models pushed to an object store, by runs of a pipeline whose root is local."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.faults  # slow: three trainings


@pytest.fixture(scope="module", params=["s3", "gs"])
def object_store(request):
    return request.param


@pytest.fixture(scope="module")
def pushing(bucket, make_small, tmp_path_factory):
    """The small workspace, whose models are pushed to a bucket."""
    small = make_small(tmp_path_factory.mktemp("checkout"))
    yaml = small.yaml.read_text().replace("serving/small", f"{bucket}/serving")
    yaml = yaml.replace("epochs: 1", "epochs: 1, warm_start: latest")
    small.yaml.write_text(yaml)
    return small


def versions(workspace):
    """The versions, newest first."""
    listed = workspace.strategos("models", str(workspace.yaml), "--json").stdout
    return json.loads(listed)


def test_models_are_pushed_compared_and_started_from(pushing, write_span):
    pushing.run()
    pushing.run()
    assert set(pushing.states().values()) == {"cached"}
    (first,) = versions(pushing)
    assert first["live"] and first["metrics"]
    assert first["spans"] == [[1, None], [2, None]]
    write_span(pushing.folder, 3)
    pushing.strategos("retrain", str(pushing.yaml), "--if-due")
    second, _ = versions(pushing)
    assert second["live"] and second["version"] > first["version"]
    done = pushing.last_run()
    assert done["pushed"] == [second["path"], str(second["version"])]
    words = ("lineage", str(second["version"]), str(pushing.yaml), "--json")
    steps = json.loads(pushing.strategos(*words).stdout)["steps"]
    given = {step["node"]: step["parameters"] for step in steps}
    assert given["BaselineModel"]["baseline"] == first["path"]
    assert given["Trainer"]["warm_start"].endswith("/Format-Weights")


def test_the_earlier_model_can_be_live_again(pushing):
    _, earlier = versions(pushing)
    pushing.strategos("rollback", str(pushing.yaml))
    copy, *_ = versions(pushing)
    assert copy["live"] and copy["rollback_of"] == earlier["version"]
    rows = str(pushing.folder / "data" / "span-1" / "rows.csv")
    said = pushing.strategos("predict", str(pushing.yaml), rows).stderr
    assert f"predicted by {copy['path']}" in said
    assert (
        "Not due" in pushing.strategos("retrain", str(pushing.yaml), "--if-due").stdout
    )


def test_a_version_that_does_not_load_does_not_become_live(pushing, bucket_client):
    live, withdrawn, *_ = before = versions(pushing)
    key = f"serving/{withdrawn['version']}/saved_model.pb"
    good = bucket_client.get_object(Bucket="bucket", Key=key)["Body"].read()
    bucket_client.put_object(Bucket="bucket", Key=key, Body=good[: len(good) // 2])
    objects = _objects(bucket_client)
    words = ("rollback", str(pushing.yaml), str(withdrawn["version"]))
    said = pushing.strategos(*words, expect=1).stderr
    start = f"strategos: version {withdrawn['version']} does not become live: "
    assert said.startswith(start) and "Choose another version" in said
    assert _objects(bucket_client) == objects
    assert versions(pushing) == before and live["live"]
    bucket_client.put_object(Bucket="bucket", Key=key, Body=good)


def _objects(client):
    found = client.list_objects_v2(Bucket="bucket", Prefix="serving/")["Contents"]
    return {each["Key"]: each["ETag"] for each in found}


def test_a_version_that_is_lost_is_pushed_again(pushing, bucket_client):
    found = bucket_client.list_objects_v2(Bucket="bucket", Prefix="serving/")
    for each in found["Contents"]:
        bucket_client.delete_object(Bucket="bucket", Key=each["Key"])
    pushing.run()
    assert pushing.states()["Pusher"] == "complete"
    assert [each["live"] for each in versions(pushing)] == [True]


def test_a_canary_in_a_bucket_is_promoted_and_then_gone(pushing, bucket, bucket_client):
    words = ("--set", f"pusher.canary={bucket}/trial", "--set", "data.spans=1..2")
    words += ("--set", "trainer.seed=5")
    (before,) = versions(pushing)
    pushing.run(*words)
    place = (str(pushing.yaml), *words)
    listed = json.loads(pushing.strategos("models", *place, "--json").stdout)
    assert [(each["slot"], each["live"]) for each in listed] == [
        *(("canary", False), ("", True))
    ]
    assert listed[0]["path"].startswith(f"{bucket}/trial/")
    assert listed[1]["version"] == before["version"]
    promoted = pushing.strategos("canary", "promote", *place).stdout
    assert "(on span 3, bounds held: 2)" in promoted
    live, old = versions(pushing)
    assert live["live"] and old["version"] == before["version"]
    assert live["run_id"] == listed[0]["run_id"]
    pushing.run(*words)
    assert pushing.states()["Pusher"] == "complete"
    assert len(versions(pushing)) == 2
    left = bucket_client.list_objects_v2(Bucket="bucket", Prefix="trial/")
    keys = [each["Key"] for each in left.get("Contents", ())]
    assert all(key.endswith("/") for key in keys)  # Arrow's objects for folders
