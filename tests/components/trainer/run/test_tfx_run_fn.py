"""Modules written for TFX's own Trainer: those of its templates, unchanged."""

from __future__ import annotations

import importlib
import json
import random
import re
import shutil
import sys
from pathlib import Path

import pytest

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.distribution.strategy import Choice
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.user_code import modules

pytestmark = pytest.mark.long

KEYS = ("body_mass_g", "culmen_depth_mm", "culmen_length_mm", "flipper_length_mm")
MEANS = {0: (3700, 18, 39, 190), 1: (3700, 18, 49, 196), 2: (5000, 15, 47, 217)}


def _copy_template(target: Path) -> None:
    """What `tfx template copy --model=penguin` writes to `models/`."""
    import tfx

    source = Path(tfx.__path__[0], "experimental/templates/penguin/models")
    target.mkdir(parents=True)
    for file in source.glob("*.py"):
        if not file.name.endswith("_test.py"):
            text = file.read_text()
            imports = r"from tfx\.experimental\.templates\.[^\.]+\."
            (target / file.name).write_text(re.sub(imports, "from ", text))


def _write_penguins(folder: Path, rows: int, generator: random.Random) -> None:
    import tensorflow as tf

    folder.mkdir(parents=True)
    file = str(folder / "data_tfrecord-00000-of-00001.gz")
    with tf.io.TFRecordWriter(file, "GZIP") as writer:
        for _ in range(rows):
            example = tf.train.Example()
            species = generator.randrange(3)
            for key, mean in zip(KEYS, MEANS[species], strict=True):
                value = generator.gauss(mean, mean * 0.03)
                example.features.feature[key].float_list.value.append(value)
            example.features.feature["species"].int64_list.value.append(species)
            writer.write(example.SerializeToString())


@pytest.fixture(scope="module")
def penguins(workload_in, transform, tmp_path_factory):
    """The template's own preprocessing of 600 and 150 penguins, and its model."""
    import tfx

    made = workload_in(tmp_path_factory.mktemp("penguins"))
    _copy_template(made.root / "user" / "models")
    (made.root / "schema").mkdir()
    data = Path(tfx.__path__[0], "components/testdata/penguin")
    shutil.copy(data / "schema" / "schema.pbtxt", made.schema)
    generator = random.Random(1)
    for split, rows in (("train", 600), ("eval", 150)):
        _write_penguins(made.root / "raw" / f"Split-{split}", rows, generator)
    transform(made, "models.preprocessing", "species_xf")
    return made


@pytest.fixture(scope="module")
def train(penguins, spec_of):
    def launch(module="models.model", **changes):
        spec = spec_of(
            penguins,
            module=module,
            **{"label": "species", "batch_size": 20, "epochs": 2, **changes},
        )
        return spec, local.launch(spec, Operation())

    return launch


@pytest.fixture(scope="module")
def trained(train):
    return train()


def test_the_template_trains_and_its_export_is_published(trained, penguins):
    import numpy as np
    import tensorflow as tf

    spec, facts = trained
    assert (facts["rows"], facts["steps"], facts["evaluation"]) == (600, 60, {})
    served = tf.saved_model.load(f"{spec.model_dir}/Format-Serving")
    assert {"serving_default", "transform_features"} <= set(served.signatures)
    raw = next(iter(tf.data.TFRecordDataset(penguins.raw("eval"), "GZIP").batch(150)))
    answer = served.signatures["serving_default"](raw)["outputs"]
    label = served.signatures["transform_features"](raw)["species_xf"]
    right = np.argmax(answer, 1) == np.ravel(label)
    assert right.mean() > 0.8
    assert list(Path(spec.log_dir).rglob("events.out*"))  # fn_args.model_run_dir


def test_infra_validation_takes_it(trained, penguins):
    from strategos.components.infra_validator.probe import probe

    model = f"{trained[0].model_dir}/Format-Serving"
    answer = probe({"model": model, "files": penguins.raw("eval"), "requests": 3})
    assert answer == {"answers": 3, "outputs": ["outputs"]}


def test_the_evaluator_takes_its_logits_and_the_label_it_makes(trained, penguins):
    import tensorflow as tf

    from strategos.components.evaluation.inputs.models import Location
    from strategos.components.evaluation.inputs.rows import Question
    from strategos.components.evaluation.scoring import Scorer

    model = Location("it", "candidate", f"{trained[0].model_dir}/Format-Serving")
    types = {"species": tf.int64}
    metrics = ("accuracy", "log_loss")
    asked = Question("multi_class", metrics, "species", (), types)
    message = "needs probabilities.*if the numbers are logits, set `evaluator.from_log"
    with pytest.raises(UserError, match=message):
        Scorer(asked, (model,))(penguins.raw("eval"))
    measured = []
    for label, known in (("species", types), ("species_xf", {})):
        asked = Question("multi_class", metrics, label, (), known, from_logits=True)
        sums = Scorer(asked, (model,))(penguins.raw("eval")).sums
        measured.append(sums.metrics("it")[0].metrics)
    assert measured[0] == measured[1]
    assert measured[0]["accuracy"] > 0.8
    assert measured[0]["log_loss"] < 0.6


def test_the_pushed_model_answers_plain_rows(trained):
    from strategos.components.predict import prediction

    rows = [dict(zip(KEYS, map(str, mean), strict=True)) for mean in MEANS.values()]
    answers = prediction.predict(f"{trained[0].model_dir}/Format-Serving", rows)
    best = [max(range(3), key=answer["outputs"].__getitem__) for answer in answers]
    assert best == list(MEANS)


SHOWING = """
import json
import os
import tensorflow as tf

def run_fn(fn_args):
    for file in fn_args.train_files:
        assert tf.io.gfile.glob(file), file
    print("SEEN", json.dumps({
        "task": json.loads(os.environ.get("TF_CONFIG", "{}")).get("task"),
        "custom_config": fn_args.custom_config,
        "steps": [fn_args.train_steps, fn_args.eval_steps],
        "same": fn_args.transform_output == fn_args.transform_graph_path,
        "schema": os.path.exists(fn_args.schema_path),
        "base_model": fn_args.base_model,
    }, sort_keys=True))
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    module.serve = tf.function(
        lambda x: {"y": x * module.weight},
        input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    tf.saved_model.save(
        module, fn_args.serving_model_dir, signatures={"raw": module.serve})
"""


def test_each_task_finds_its_place_and_only_the_chiefs_model_counts(
    train, penguins, capfd, tmp_path
):
    penguins.write_module("showing", SHOWING)
    events.open_sink(str(tmp_path / "events"), node="Trainer")
    distribution = {"strategy": "multi_worker_mirrored", "workers": 2}
    spec, facts = train(
        "showing", distribution=distribution, hyperparameters={"units": [8]}
    )
    events.open_sink(None)
    said = capfd.readouterr().err
    for kind in ("chief", "worker"):
        seen = re.search(rf"\[{kind}-0\] SEEN (.*)", said)[1]
        assert f'"task": {{"index": 0, "type": "{kind}"}}' in seen
        assert '"custom_config": {"units": [8]}' in seen
        assert '"steps": [60, 8]' in seen and '"same": true' in seen
        assert '"schema": true' in seen and '"base_model": null' in seen
    assert facts["workers"] == 2
    assert Path(spec.model_dir, "Format-Serving", "saved_model.pb").exists()
    lines = (tmp_path / "events").read_text().splitlines()
    (warning,) = (json.loads(line) for line in lines if '"warning"' in line)
    assert "no `serving_default` (signatures: raw)" in warning["message"]
    assert "Evaluator, InfraValidator and `strategos predict`" in warning["message"]


@pytest.mark.parametrize(
    ("source", "strategy", "message"),
    [
        (
            "pass",
            "one_device",
            r"wrong.py: `run_fn` ended without a SavedModel in "
            r"`fn_args.serving_model_dir`; it has: nothing. End it with",
        ),
        (
            "fn_args.train_file",
            "one_device",
            r"`run_fn` fails: .*wrong.py:2: AttributeError: .*train_file",
        ),
        (
            "pass",
            "parameter_server",
            r"wrong.py: `run_fn` needs workers .* under parameter_server",
        ),
    ],
)
def test_a_wrong_module_fails_with_the_reason(
    penguins, spec_of, tmp_path, source, strategy, message
):
    from strategos.components.trainer.run import tfx_run_fn

    penguins.write_module("wrong", f"def run_fn(fn_args):\n    {source}\n")
    sys.modules.pop("wrong", None)
    importlib.invalidate_caches()
    spec = spec_of(penguins, module="wrong", label="species", batch_size=20, epochs=1)
    assert modules.takes_fn_args(spec.folder, spec.module)
    choice = Choice(strategy, "asked for")
    with pytest.raises(UserError, match=message):
        tfx_run_fn.train(spec, ClusterSpec(), choice, str(tmp_path / "exported"))


def test_a_module_of_our_contract_is_not_taken_for_a_stock_one(penguins, digits):
    assert modules.takes_fn_args(penguins.folder, "models.model")
    installed = "tfx.examples.penguin.penguin_utils_keras"
    assert modules.takes_fn_args(penguins.folder, installed)
    for module in ("model", "custom_loop", "not_there"):
        assert not modules.takes_fn_args(digits.folder, module)


SERVING_ALL = """
import tensorflow as tf
import tensorflow_transform as tft

def run_fn(fn_args):
    output = tft.TFTransformOutput(fn_args.transform_graph_path)
    module = tf.Module()
    module.layer = output.transform_features_layer()
    spec = output.raw_feature_spec()

    def serve(examples):
        features = module.layer(tf.io.parse_example(examples, spec))
        return {"mass": features["body_mass_g_xf"]}

    module.serve = tf.function(
        serve, input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    tf.saved_model.save(
        module, fn_args.serving_model_dir, signatures={"serving_default": module.serve})
"""


@pytest.mark.parametrize(
    ("module", "label"),
    [
        ("models.model", "species"),
        ("models.model", "of_another_kind"),
        ("serving_all", "species_xf"),
        ("serving_all", "of_another_kind"),
    ],
)
def test_rows_need_neither_the_label_nor_its_source_columns(
    trained, penguins, tmp_path, module, label
):
    """For any name of the label in the module, required by its parser or not."""
    import dataclasses

    from strategos.components.predict import prediction
    from strategos.components.trainer.run import tfx_run_fn

    spec = dataclasses.replace(trained[0], label=label, model_dir=str(tmp_path))
    exported = f"{trained[0].model_dir}/Format-Serving"
    if module == "serving_all":
        penguins.write_module("serving_all", SERVING_ALL)
        importlib.invalidate_caches()
        exported = str(tmp_path / "exported")
        function = modules.function(spec.folder, module, "run_fn")
        function(tfx_run_fn._fn_args(spec, 600, exported))
    tfx_run_fn.publish(spec, exported, str(tmp_path / "published"))
    rows = [dict(zip(KEYS, map(str, mean), strict=True)) for mean in MEANS.values()]
    if (module, label) == ("serving_all", "of_another_kind"):
        rows = [{**row, "species": "1"} for row in rows]  # not recognised as a label
    answers = prediction.predict(str(tmp_path / "published"), rows)
    assert len(answers) == len(rows)
