"""A compiled pipeline whose modules are in a bucket, and not in the image."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import yaml

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
OTHERS = {"Resolve", "ExampleGen", "StatisticsGen", "Transform"}


class Cluster:
    """A workspace that is compiled and run as by KFP's launcher, with an image."""

    def __init__(self, workspace, launcher, folder, image):
        self.workspace, self.image, self.folder = workspace, image, folder
        self._launcher, self._runs = launcher, 0

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
        return next(yaml.safe_load_all(file.read_text()))

    def run(self, spec, *only):
        self._runs += 1
        folder = self.folder / f"run-{self._runs}"
        launcher = self._launcher(spec, folder, self.workspace.warm, self.image)
        launcher.run(*only)
        return launcher

    def versions(self):
        return sorted((self.folder / "mounted" / "serving").iterdir())


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


def keys(spec):
    """What KFP's cache compares of each step, besides its artifacts."""
    tasks, found = spec["root"]["dag"]["tasks"], {}
    for name, task in tasks.items():
        label = spec["components"][name]["executorLabel"]
        container = dict(spec["deploymentSpec"]["executors"][label]["container"])
        container.pop("env", None)
        found[name] = (container, task.get("inputs"), spec["components"][name])
    return found


def weights(version):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    return {name: reader.get_tensor(name) for name in types if types[name].is_floating}


def test_pushed_model_is_that_of_an_image_with_the_modules(
    with_modules, without_modules, spec, bucket_client
):
    assert len(archives(bucket_client)) == 2
    wanted = with_modules.run(with_modules.compile())
    found = without_modules.run(spec)
    (theirs,), (ours,) = with_modules.versions(), without_modules.versions()
    expected = weights(theirs)
    assert weights(ours).keys() == expected.keys() != set()
    for name, values in weights(ours).items():
        np.testing.assert_array_equal(values, expected[name])
    ours, theirs = (
        json.loads((each.files("Evaluator", "evaluation") / "summary.json").read_text())
        for each in (found, wanted)
    )
    assert ours["overall"] == theirs["overall"]
    candidates = [each.outputs["Resolve", "candidate"] for each in (found, wanted)]
    assert candidates[0] == candidates[1]
    assert keys(without_modules.compile()) == keys(spec)


def test_changed_module_changes_the_keys_of_the_steps_that_use_it(
    without_modules, spec, modules, workspace, bucket_client
):
    before = archives(bucket_client)
    (workspace.folder / "rate.txt").write_text("0.25")
    changed = without_modules.compile(modules)
    assert len(archives(bucket_client)) == len(before) + 1
    found, old = keys(changed), keys(spec)
    assert {name for name in found if found[name] != old[name]} == {
        *("Resolve", "Trainer")
    }
    without_modules.run(changed)
    first, second = without_modules.versions()
    assert any((weights(second)[n] != v).any() for n, v in weights(first).items())
    (workspace.folder / "rate.txt").write_text("0.5")
    assert without_modules.compile(modules) == spec
    assert len(archives(bucket_client)) == len(before) + 1


@pytest.mark.parametrize(
    "content, reason", [(b"other", "the content differs"), (None, "no such object")]
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
            without_modules.run(spec)
    finally:
        bucket_client.put_object(**at, Body=stored)
    said = str(raised.value)
    assert f"kubeflow.modules: s3://bucket/{key}: " in said and reason in said
    assert "Traceback" not in said
