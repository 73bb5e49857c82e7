"""A compiled pipeline whose modules are in a bucket, and not in the image."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.long

MODEL = """
import importlib
import tensorflow as tf
from layers.dense import last
RATES = importlib.import_module("rates")

def build_model(context):
    tf.keras.utils.set_random_seed(7)
    x = tf.keras.Input((1,), name="x")
    model = tf.keras.Model([x], last(x))
    model.compile(tf.keras.optimizers.SGD(RATES.rate()), "binary_crossentropy")
    return model
"""
FILES = {
    "model.py": MODEL,
    "layers/__init__.py": "",
    "layers/dense.py": "import tensorflow as tf\nfrom . import units\n"
    "def last(x):\n    return tf.keras.layers.Dense(units.N, 'sigmoid')(x)\n",
    "layers/units.py": "N = 1\n",
    "rates.py": "import pathlib\nFILE = pathlib.Path(__file__).parent / 'rate.txt'\n"
    "def rate():\n    return float(FILE.read_text())\n",
    "rate.txt": "0.5",
}


class Cluster:
    """A workspace that is compiled and run as by KFP's launcher, with an image.

    `run(*nodes)` runs what was compiled last.
    """

    def __init__(self, workspace, launcher, folder, image):
        self.workspace, self.folder = workspace, folder
        self.launcher = launcher({}, folder / "cluster", workspace.warm, image)
        self.run = self.launcher.run

    def compile(self, *sets):
        file = self.folder / "pipeline.yaml"
        section = {
            "image": "x",
            "context": str(self.workspace.folder.parent),
            "volumes": [{"claim": "c", "path": str(self.folder / "mounted")}],
        }
        given = (
            f"kubeflow={json.dumps(section)}",
            f"pusher.to={self.folder}/mounted/serving",
            *sets,
        )
        words = [word for each in given for word in ("--set", each)]
        self.workspace.strategos(
            *("compile", str(self.workspace.yaml), *words),
            *("--target", "kubeflow", "-o", str(file)),
        )
        spec = next(yaml.safe_load_all(file.read_text()))
        self.launcher.spec = spec
        return spec

    def summary(self):
        folder = self.launcher.files("Evaluator", "evaluation")
        return json.loads((folder / "summary.json").read_text())

    def loss(self):
        facts = self.launcher.artifacts["Trainer", "model"]["metadata"]
        return json.loads(facts["history"])["loss"]


@pytest.fixture(scope="module")
def workspace(bucket, make_small, tmp_path_factory):
    made = make_small(tmp_path_factory.mktemp("checkout"))
    for name, content in FILES.items():
        (made.folder / name).parent.mkdir(exist_ok=True)
        (made.folder / name).write_text(content)
    return made


@pytest.fixture(scope="module")
def with_modules(workspace, kfp_launcher, tmp_path_factory):
    """A cluster whose image contains all files of the workspace."""
    folder = tmp_path_factory.mktemp("with")
    return Cluster(workspace, kfp_launcher, folder, workspace.folder.parent)


@pytest.fixture(scope="module")
def without_modules(workspace, kfp_launcher, tmp_path_factory):
    """A cluster whose image contains schema and data, and an outdated `rates`."""
    folder = tmp_path_factory.mktemp("without")
    image = folder / "image"
    shutil.copytree(workspace.folder / "data", image / "small" / "data")
    shutil.copy(workspace.folder.parent / "schema.pbtxt", image)
    (image / "small" / "rates.py").write_text("def rate():\n    return 9.0\n")
    return Cluster(workspace, kfp_launcher, folder, image)


@pytest.fixture(scope="module")
def modules(bucket):
    return f"kubeflow.modules={bucket}/modules"


@pytest.fixture(scope="module")
def spec(without_modules, modules):
    return without_modules.compile(modules)


def archives(client):
    listed = client.list_objects_v2(Bucket="bucket", Prefix="modules/")
    return [each["Key"] for each in listed.get("Contents", ())]


def keys(spec, *renamed):
    """What KFP's cache compares of each step, besides its artifacts.

    Not of what Resolve keeps of the run: it has the settings, where the modules are
    among them.
    """
    if renamed:
        spec = json.loads(json.dumps(spec).replace(*map(str, renamed)))
    tasks, found = spec["root"]["dag"]["tasks"], {}
    for name, task in tasks.items():
        label = spec["components"][name]["executorLabel"]
        container = dict(spec["deploymentSpec"]["executors"][label]["container"])
        container.pop("env", None)
        if name == "Resolve":
            question = json.loads(container["args"][1])
            container["args"] = question | {"made_from": {}, "modules": []}
        found[name] = (container, task.get("inputs"), spec["components"][name])
    return found


def weights(serving):
    import tensorflow as tf

    (version,) = serving.glob("[0-9]*")
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    return {name: reader.get_tensor(name) for name in types if types[name].is_floating}


def test_pushed_model_is_that_of_a_local_run_and_the_keys_those_with_the_modules(
    with_modules, without_modules, workspace, spec, bucket_client
):
    assert len(archives(bucket_client)) == 2
    in_image = with_modules.compile()
    with_modules.run("Resolve")
    without_modules.run()
    workspace.run()
    found = weights(without_modules.folder / "mounted" / "serving")
    expected = weights(workspace.folder / "serving" / "small")
    assert found.keys() == expected.keys() != set()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name])
    local = workspace.last_run()["summary"]
    assert without_modules.summary()["overall"] == local["overall"]
    ours, theirs = without_modules.launcher.outputs, with_modules.launcher.outputs
    assert ours["Resolve", "candidate"] == theirs["Resolve", "candidate"]
    assert keys(spec) == keys(in_image, with_modules.folder, without_modules.folder)


def test_changed_module_changes_the_keys_of_the_steps_that_use_it(
    without_modules, spec, modules, workspace, bucket_client
):
    before, loss = archives(bucket_client), without_modules.loss()
    (workspace.folder / "rate.txt").write_text("0.25")
    changed = without_modules.compile(modules)
    assert len(archives(bucket_client)) == len(before) + 1
    found, old = keys(changed), keys(spec)
    assert {n for n in found if found[n] != old[n]} == {"Resolve", "Trainer"}
    without_modules.run("Resolve", "Trainer")
    assert without_modules.loss() != loss
    (workspace.folder / "rate.txt").write_text("0.5")
    assert without_modules.compile(modules) == spec
    assert len(archives(bucket_client)) == len(before) + 1


@pytest.mark.parametrize(
    "content, reason", [(b"other", "the content differs"), (None, "object not found")]
)
def test_step_without_its_modules_ends_with_one_message(
    without_modules, spec, bucket_client, content, reason
):
    (key,) = (each for each in archives(bucket_client) if "preprocessing" in each)
    at = {"Bucket": "bucket", "Key": key}
    stored = bucket_client.get_object(**at)["Body"].read()
    if content:
        bucket_client.put_object(**at, Body=content)
    else:
        bucket_client.delete_object(**at)
    try:
        with pytest.raises(AssertionError) as raised:
            without_modules.run("Transform")
    finally:
        bucket_client.put_object(**at, Body=stored)
    said = str(raised.value)
    assert f"kubeflow.modules: s3://bucket/{key}: " in said and reason in said
    assert "Traceback" not in said
