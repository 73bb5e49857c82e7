"""Files to predict, predictions and artifacts in an object store."""

from __future__ import annotations

import json

import pytest

from strategos.components.files import listing, storage

pytestmark = pytest.mark.long


def test_files_and_predictions_may_be_in_a_bucket(
    make_small, bucket, mariadb, metadata_password, tmp_path
):
    made = make_small(tmp_path / "checkout")
    section = {"data": f"{bucket}/new/{{SPAN}}.csv", "to": f"{bucket}/scored"}
    root = json.dumps({"root": f"{bucket}/root", "metadata": mariadb})
    text = f"{made.yaml.read_text()}predict: {json.dumps(section)}\nrun: {root}\n"
    made.yaml.write_text(text)
    storage.write(f"{bucket}/new/1.csv", "x\n1\n2\n")
    made.run()
    (manifest,) = _manifests(bucket)
    assert json.loads(storage.read(manifest))["rows"] == 2
    made.run()
    assert made.states()["BulkInferrer"] == "cached"
    storage.write(f"{bucket}/new/1.csv", "x\n1\n2\n3\n")
    made.run()
    (later,) = {*_manifests(bucket)} - {manifest}
    assert json.loads(storage.read(later))["rows"] == 3
    storage.remove(later.rpartition("/")[0])
    assert "has no _manifest.json" in made.run().stderr
    (again,) = {*_manifests(bucket)} - {manifest}
    assert json.loads(storage.read(again))["rows"] == 3


def _manifests(bucket: str) -> list[str]:
    files, _ = listing.below(f"{bucket}/scored")
    return [file for file in files if file.endswith("/_manifest.json")]
