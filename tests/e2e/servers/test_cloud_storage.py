"""A run whose data, schema, root and pushed models are on Google Cloud Storage."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest


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


def test_pushed_model_is_that_of_a_local_run(
    remote, make_small, bucket_client, tmp_path
):
    remote.run()
    local = make_small(tmp_path)
    local.run()
    done = remote.last_run()
    expected = local.last_run()["metrics"]  # MySQL keeps six digits
    assert done["metrics"] == pytest.approx(expected, abs=1e-6)
    (url, _) = done["pushed"]
    assert url.startswith("gs://bucket/serving/")
    (version,) = local.serving()
    files = sorted(Path(local.folder, "serving/small", version).glob("variables/*"))
    assert len(files) == 2
    for file in files:
        key = f"{url.removeprefix('gs://bucket/')}/variables/{file.name}"
        stored = bucket_client.get_object(Bucket="bucket", Key=key)["Body"].read()
        assert stored == file.read_bytes()


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
