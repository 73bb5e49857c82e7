"""The executor's specification for a training, and its clean-up."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings, WorkerSpec

_PROPERTIES = {
    "user_module": json.dumps({"folder": "/w", "module": "model", "fingerprint": "f"}),
    "label": "late",
    "batch_size": 8,
    "epochs": 2,
    "seed": 1,
    "hyperparameters": '{"units": [4]}',
    "distribution": '{"strategy": "mirrored", "devices": 2}',
    "settings": '{"callbacks": {"csv": true}, "last_batch": "drop"}',
    "null_values": '["NA", "-999"]',
    "warm_start": "none",
}


_OPERATION = Operation(checkpoint_key="abc")
_THREE = "train validation eval"


@pytest.fixture
def artifacts(tmp_path):
    """Inputs and outputs of a run, under `tmp_path`."""
    from tfx.types import standard_artifacts

    def artifact(kind, *names):
        made = kind()
        made.uri = str(tmp_path.joinpath(*names))
        Path(made.uri).mkdir(parents=True)
        return [made]

    examples = artifact(standard_artifacts.Examples, "Transform", "examples", "3")
    examples[0].split_names = '["train", "eval"]'
    schema = artifact(standard_artifacts.Schema, "SchemaGen", "schema", "2")
    Path(schema[0].uri, "schema.pbtxt").touch()
    graph = artifact(standard_artifacts.TransformGraph, "Transform", "graph", "3")
    inputs = {"examples": examples, "schema": schema, "transform_graph": graph}
    outputs = {
        "model": artifact(standard_artifacts.Model, "Trainer", "model", "4"),
        "model_run": artifact(standard_artifacts.ModelRun, "Trainer", "model_run", "4"),
    }
    return inputs, outputs


_VECTOR = """
feature { name: "x" type: FLOAT shape {} }
feature { name: "late" type: FLOAT shape { dim { size: 3 } } }
"""


def test_several_labels_a_row_are_refused_before_training(artifacts):
    from strategos.components.errors import UserError
    from strategos.components.trainer.executor import check_label, worker_spec

    spec = worker_spec(*artifacts, _PROPERTIES, _OPERATION)
    file = Path(spec.transform_graph, "transformed_metadata", "schema.pbtxt")
    check_label(spec, "binary")  # nothing is known
    file.parent.mkdir()
    file.write_text(_VECTOR)
    check_label(spec, "")  # nothing is judged
    check_label(spec, "multi_class")  # one-hot
    with pytest.raises(UserError, match="^label: `late` has 3 values a row after"):
        check_label(spec, "binary")
    file.write_text(_VECTOR.replace("size: 3", "size: 1"))
    check_label(spec, "regression")


def test_the_worker_is_told_settings_and_where_checkpoints_lie(artifacts, tmp_path):
    from strategos.components.trainer.executor import worker_spec

    spec = worker_spec(*artifacts, _PROPERTIES, _OPERATION)
    assert spec.settings == Settings(callbacks={"csv": True}, last_batch="drop")
    assert spec.distribution == {"strategy": "mirrored", "devices": 2}
    assert spec.checkpoint_dir == str(tmp_path / "Trainer" / "checkpoints" / "abc")
    assert spec.null_values == ("NA", "-999")
    assert WorkerSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.warm_start == ""
    warm = {**_PROPERTIES, "warm_start": "/m/Format-Weights"}
    assert worker_spec(*artifacts, warm, _OPERATION).warm_start == "/m/Format-Weights"


def test_training_evaluates_on_the_validation_split_where_there_is_one(artifacts):
    from strategos.components.trainer.executor import worker_spec

    (examples,) = artifacts[0]["examples"]
    for name, rows in (("train", 7), ("validation", 1), ("eval", 2)):
        examples.set_int_custom_property(f"rows_{name}", rows)
    for names, expected in (("train eval", "eval"), (_THREE, "validation")):
        examples.split_names = json.dumps(names.split())
        for name in names.split():
            Path(examples.uri, f"Split-{name}").mkdir(exist_ok=True)
            Path(examples.uri, f"Split-{name}", "a.gz").touch()
        spec = worker_spec(*artifacts, _PROPERTIES, _OPERATION)
        assert spec.train_files == (f"{examples.uri}/Split-train/a.gz",)
        assert spec.eval_files == (f"{examples.uri}/Split-{expected}/a.gz",)
        assert spec.eval_split == expected
        rows = examples.get_int_custom_property(f"rows_{expected}")
        assert (spec.train_rows, spec.eval_rows) == (7, rows)


def test_weights_in_an_object_store_are_downloaded_where_training_is_local(
    artifacts, bucket, bucket_client
):
    from strategos.components.errors import UserError
    from strategos.components.trainer.executor import with_local_inputs, worker_spec

    name = bucket.removeprefix("s3://").partition("/")[0]
    for version in ("7", "8"):
        key = f"serving/{version}/assets.extra/weights/weights.json"
        bucket_client.put_object(Bucket=name, Key=key, Body=version.encode())

    def local(version):
        url = f"s3://{name}/serving/{version}/assets.extra/weights"
        spec = worker_spec(*artifacts, {**_PROPERTIES, "warm_start": url}, _OPERATION)
        return with_local_inputs(spec).warm_start

    first = local(7)
    assert Path(first, "weights.json").read_text() == "7"
    assert local(7) == first != local(8)
    with pytest.raises(UserError) as raised:
        local(9)
    assert raised.value.key == "trainer.warm_start"
    assert f"s3://{name}/serving/9" in str(raised.value)


def test_other_orchestrators_find_checkpoints_by_inputs_and_settings(artifacts):
    from strategos.components.trainer.executor import worker_spec

    def place(**changes):
        return worker_spec(
            *artifacts, {**_PROPERTIES, **changes}, Operation()
        ).checkpoint_dir

    assert place(distribution="{}", warm_start="/m") == place()
    assert place(epochs=3) != place()
    before = place()
    artifacts[0]["examples"][0].uri += "/other"
    assert place() != before


def test_checkpoints_that_nobody_resumed_for_a_week_are_removed(tmp_path):
    from strategos.components.trainer.executor import prune_checkpoints

    for name, days in (("own", 30), ("old", 8), ("young", 6)):
        (tmp_path / name / "5").mkdir(parents=True)
        file = tmp_path / name / "5" / "weights"
        file.touch()
        os.utime(file, (time.time() - days * 86400,) * 2)
    (tmp_path / "just made").mkdir()
    kept = prune_checkpoints(str(tmp_path / "own"))
    assert kept == [str(tmp_path / name) for name in ("young", "just made")]
    assert {path.name for path in tmp_path.iterdir()} == {"own", "young", "just made"}
    prune_checkpoints(str(tmp_path / "nothing" / "yet"))
