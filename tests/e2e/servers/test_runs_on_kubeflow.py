"""Runs of a compiled pipeline are compared, explained and made again by records."""

from __future__ import annotations

import difflib
import json
import shutil
import time
from types import SimpleNamespace

import pytest
import yaml

pytestmark = pytest.mark.long

CHANGE = "\n# a comment that is new\n"
CHANGED = ("Resolve", "Trainer", "BaselineModel", "Evaluator")


@pytest.fixture(scope="module")
def cluster(bucket, bucket_client, make_small, kfp_launcher, tmp_path_factory):
    """Two runs whose records are in a bucket; a comment in `model.py` is between.

    The modules are in the bucket; data and schema in the image, and there alone.
    """
    made = make_small(tmp_path_factory.mktemp("checkout"))
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(made.folder / "data", folder / "image" / "small" / "data")
    shutil.copy(made.folder.parent / "schema.pbtxt", folder / "image")
    section = {
        **{"image": "x", "context": str(made.folder.parent)},
        **{"root": f"{bucket}/kfp", "modules": f"{bucket}/modules"},
    }
    text = made.yaml.read_text().replace("serving/small", f"{bucket}/serving")
    made.yaml.write_text(f"{text}kubeflow: {json.dumps(section)}\n")

    def compiled():
        words = ("--target", "kubeflow", "-o", str(folder / "spec"))
        made.strategos("compile", str(made.yaml), *words)
        return next(yaml.safe_load_all((folder / "spec").read_text()))

    launcher = kfp_launcher(
        compiled(), folder, made.warm, folder / "image", s3=bucket_client
    )
    launcher.run()
    model = made.folder / "model.py"
    texts = [model.read_text(), model.read_text() + CHANGE]
    model.write_text(texts[1])
    launcher.spec = compiled()
    time.sleep(1.1)  # the store has whole seconds
    launcher.run(*CHANGED)  # the others as from KFP's cache
    return SimpleNamespace(made=made, texts=texts, launcher=launcher)


def said(cluster, *words, **options):
    made = cluster.made
    return made.strategos(*words, str(made.yaml), **options)


def test_a_change_of_the_code_is_shown_line_by_line(cluster):
    found = json.loads(said(cluster, "runs", "compare", "--json").stdout)
    assert [found[x]["run_id"] for x in ("before", "after")] == ["run-1", "run-2"]
    (code,) = found["code"]
    before, after = (text.splitlines() for text in cluster.texts)
    names = ("a/model.py", "b/model.py")
    expected = difflib.unified_diff(before, after, *names, lineterm="")
    assert (code["path"], code["diff"]) == ("model.py", list(expected))
    assert found["settings"] == found["data"] == found["stack"] == []


def test_each_node_has_its_reason(cluster):
    found = json.loads(said(cluster, "explain", "run", "run-2", "--json").stdout)
    nodes = {each["node"]: each for each in found["nodes"]}
    trainer = nodes.pop("Trainer")
    assert trainer["text"] == "files: model.py changed"
    assert trainer["compared"] == "run-1"
    cached = "nothing changed since run run-1"
    assert nodes["ExampleGen"]["text"] == nodes["Transform"]["text"] == cached
    assert "new outputs of" in nodes["Evaluator"]["text"]
    words = ("explain", "blessing", "run-1", "--json")
    blessing = json.loads(said(cluster, *words).stdout)
    summary = json.loads(said(cluster, "runs", "show", "run-1", "--json").stdout)
    assert blessing["reason"] == summary["summary"]["reason"]


@pytest.mark.parametrize("named", ["run", "version"])
def test_the_model_of_a_run_is_made_again_bit_by_bit(cluster, named, tmp_path):
    pushed = cluster.launcher.artifacts["Pusher", "pushed_model"]["metadata"]
    name = "run-1" if named == "run" else pushed["pushed_version"]
    to = ("--to", str(tmp_path / "again"), "--json")
    found = json.loads(said(cluster, "reproduce", name, *to).stdout)
    assert found["equal"] and found["run"] == "run-1"
    assert found["differing"] == found["assets"] == []
    assert found["weights"] > 0 < found["numbers"]
    assert found["metrics"]["before"] == found["metrics"]["after"] != {}
    (model,) = (tmp_path / "again" / "workload").rglob("model.py")
    assert model.read_text() == cluster.texts[0]


def test_what_is_gone_or_has_changed_is_named(cluster, bucket, bucket_client, tmp_path):
    to = ("--to", str(tmp_path / "again"))
    (data,) = cluster.launcher._image.glob("small/data/span-2/*.csv")
    text = data.read_text()
    data.write_text(text + text.splitlines()[-1] + "\n")
    try:
        done = said(cluster, "reproduce", "run-1", *to, expect=2)
    finally:
        data.write_text(text)
    assert f"{data}: the data file has changed since" in done.stderr
    prefix = "kfp/small/run-2/Resolve/record/content/"
    listed = bucket_client.list_objects_v2(Bucket="bucket", Prefix=prefix)["Contents"]
    assert len(listed) >= 3  # model, preprocessing, schema
    for each in listed:
        bucket_client.delete_object(Bucket="bucket", Key=each["Key"])
    done = said(cluster, "reproduce", "run-2", *to, expect=2)
    assert "model.py: its content is no longer stored" in done.stderr
    found = json.loads(said(cluster, "runs", "compare", "--json").stdout)
    assert [(x["path"], x["diff"]) for x in found["code"]] == [("model.py", [])]
