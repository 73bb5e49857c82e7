"""Data and schema on S3, read by runs on this machine.

On Google Cloud Storage: test_cloud_storage.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def here(make_small, tmp_path_factory):
    """The small workspace with its data on this machine."""
    return make_small(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def remote(bucket, bucket_client, make_small, tmp_path_factory):
    """The same with data and schema in a bucket only."""
    workspace = make_small(tmp_path_factory.mktemp("there"))
    folder = workspace.folder
    for file in (folder / "data").rglob("*.csv"):
        _move(bucket_client, file, folder)
    _move(bucket_client, folder.parent / "schema.pbtxt", folder.parent)
    yaml = workspace.yaml.read_text()
    yaml = yaml.replace("data/span-{SPAN}", f"{bucket}/data/span-{{SPAN}}")
    workspace.yaml.write_text(yaml.replace("../schema", f"{bucket}/schema"))
    return workspace


def _move(client, file, base):
    key = file.relative_to(base).as_posix()
    client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
    file.unlink()


def _weights(workspace):
    import tensorflow as tf

    (version,) = workspace.serving()
    prefix = Path(workspace.folder, "serving/small", version, "variables/variables")
    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    return {name: reader.get_tensor(name) for name in types if types[name].is_floating}


def test_model_is_that_of_the_same_files_on_this_machine(remote, here):
    here.run()
    remote.run()
    ours, theirs = _weights(remote), _weights(here)
    assert ours.keys() == theirs.keys() != set()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name])
    assert remote.last_run()["metrics"] == here.last_run()["metrics"]


def test_unchanged_objects_are_cached_as_a_whole(remote):
    remote.run()
    assert set(remote.states().values()) == {"cached"}


def test_new_span_is_due_and_read(remote, write_span, bucket, bucket_client):
    due = ("retrain", str(remote.yaml), "--if-due")
    assert "Not due" in remote.strategos(*due).stdout
    _move(bucket_client, write_span(remote.folder, 3), remote.folder)
    remote.strategos(*due)
    assert remote.states()["ExampleGen"] == "complete"
    newest = max(remote.serving(), key=int)
    shown = remote.strategos("lineage", newest, str(remote.yaml), "--json").stdout
    assert f"{bucket}/data/span-3/rows.csv" in shown


def test_changed_schema_runs_the_pipeline_again(remote, bucket_client):
    schema = bucket_client.get_object(Bucket="bucket", Key="schema.pbtxt")["Body"]
    content = schema.read() + b"# reviewed\n"
    bucket_client.put_object(Bucket="bucket", Key="schema.pbtxt", Body=content)
    remote.run()
    assert remote.states()["ImportSchemaGen"] == "complete"


def test_mistakes_are_named_before_the_run(remote, bucket):
    lost = f"data.examples={bucket}/lost/span-{{SPAN}}/*.csv"
    validated = remote.strategos(
        "validate", str(remote.yaml), "--set", lost, "--set", "label=late_", expect=2
    )
    assert f"matches no object. Below {bucket}/lost: nothing, or" in validated.stderr
    validated = remote.strategos(
        "validate", str(remote.yaml), "--set", "label=late_", expect=2
    )
    assert f"{bucket}/data/span-1/rows.csv" in validated.stderr
    assert "Did you mean `late`?" in validated.stderr
    listed = json.loads(remote.strategos("runs", str(remote.yaml), "--json").stdout)
    assert {run["outcome"] for run in listed} == {"blessed"}
