from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from strategos.components import events, processes
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

TENSORBOARD = importlib.util.find_spec("tensorboard") is not None

FANCY = """
import tensorflow as tf

class Gate(tf.keras.layers.Layer):
    def call(self, x):
        if tf.reduce_sum(x) > 0:  # needs AutoGraph
            return x * 2
        else:
            return x

class Mine(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.gate, self.dense = Gate(), tf.keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.gate(tf.concat([inputs["distance"], inputs["temp"]], 1)))

    def train_step(self, data):
        features, label = data
        with tf.GradientTape() as tape:
            logits = self(features, training=True)
            loss = self.compute_loss(features, label, logits)
            if tf.reduce_max(tf.abs(logits)) > 1e6:  # needs AutoGraph
                loss = loss * 0
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables))
        return self.compute_metrics(features, label, logits, None)

class Count(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        print("user saw step", batch)

def callbacks(context):
    return [Count()]

def build_model(context):
    assert context.replicas == 1 and context.per_replica_batch_size == 100
    assert context.rows == 1000 and context.steps_per_epoch == 10
    assert context.vocabulary("carrier") and "delay" in str(context.schema)
    model = Mine()
    model.compile("sgd", tf.keras.losses.BinaryCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    return model
"""


@pytest.fixture(autouse=True, scope="module")
def warm_starts() -> None:
    """None: here the host of the gang starts as for users, not from a warm process."""


@dataclasses.dataclass(frozen=True)
class Trained:
    facts: dict
    model: Path
    properties: dict
    events: list


@pytest.fixture(scope="module")
def trained(workload, tmp_path_factory) -> Trained:
    """The executor's output, with real TFX and a real worker process."""
    from tfx.types import standard_artifacts

    from strategos.components.trainer.executor import Executor

    def artifact(kind, uri):
        made = kind()
        made.uri = str(uri)
        return made

    folder = tmp_path_factory.mktemp("trained")
    examples = artifact(standard_artifacts.Examples, workload.root / "transformed")
    examples.split_names = '["train", "eval"]'
    model = artifact(standard_artifacts.Model, folder / "model")
    events.open_sink(str(folder / "events"), node="Trainer")
    Executor().Do(
        {
            "examples": [examples],
            "transform_graph": [
                artifact(standard_artifacts.TransformGraph, workload.graph)
            ],
            "schema": [artifact(standard_artifacts.Schema, workload.root / "schema")],
        },
        {
            "model": [model],
            "model_run": [artifact(standard_artifacts.ModelRun, folder / "run")],
        },
        {
            "user_module": workload.user_module("model"),
            "label": "late",
            "batch_size": 96,
            "epochs": 3,
            "seed": 7,
            "hyperparameters": '{"units": [16]}',
            "distribution": '{"strategy": "one_device"}',
            "settings": json.dumps({"callbacks": {"tensorboard": TENSORBOARD}}),
            "warm_start": "none",
        },
    )
    events.open_sink(None)
    return Trained(
        facts=json.loads((folder / "model" / "trainer.json").read_text()),
        model=folder / "model",
        properties={
            name: value.string_value or value.int_value or value.double_value
            for name, value in model.mlmd_artifact.custom_properties.items()
        },
        events=[json.loads(x) for x in (folder / "events").read_text().splitlines()],
    )


@pytest.fixture(scope="module")
def served(trained):
    import tensorflow as tf

    return tf.saved_model.load(str(trained.model / "Format-Serving"))


@pytest.fixture(scope="module")
def raw(workload):
    import tensorflow as tf

    records = tf.data.TFRecordDataset(workload.raw("eval"), "GZIP")
    return next(iter(records.batch(300)))


def test_the_facts_are_recorded_beside_the_model_and_as_properties(trained):
    facts = trained.facts
    assert (facts["strategy"], facts["replicas"]) == ("one_device", 1)
    assert (facts["steps"], facts["examples"]) == (33, 3000)
    assert facts["examples_per_second"] > 0
    assert [len(values) for values in facts["history"].values()] == [3] * 6
    assert facts["history"]["val_auc"][-1] > 0.8
    for name in ("strategy", "reason", "workers", "global_batch", "steps", "seed"):
        assert trained.properties[name] == facts[name]
    assert json.loads(trained.properties["history"]) == facts["history"]


def test_only_finished_files_are_in_the_models_folder(trained):
    names = {path.name for path in trained.model.iterdir()}
    assert names == {"Format-Serving", "Format-Weights", "trainer.json"}
    logs = list((trained.model.parent / "run").rglob("events.out*"))
    assert bool(logs) == TENSORBOARD


def test_the_exported_model_evaluates_as_the_trained_one_did(trained):
    last = {name: values[-1] for name, values in trained.facts["history"].items()}
    for name, value in trained.facts["evaluation"].items():
        assert value == pytest.approx(last[f"val_{name}"], abs=1e-6)


def test_progress_is_reported_live(trained):
    messages = [e["message"] for e in trained.events if e["event"] == "progress"]
    assert any("epoch 3/3  step 11/11  loss" in message for message in messages)
    assert messages[-1] == "evaluating and exporting"


def test_one_device_equals_plain_fit_on_the_same_batches(trained, make_spec):
    import tensorflow as tf

    from strategos.components.trainer.model import workload
    from strategos.components.trainer.model.user_module import UserModule

    spec = make_spec()
    split = workload.split(spec, spec.train_files)
    context = workload.context(spec, split.rows, 1)
    tf.keras.utils.set_random_seed(spec.seed)
    model = UserModule(spec).build_model(context)
    losses = model.fit(
        split.shuffled(spec.batch_size, seed=spec.seed, epochs=3),
        epochs=3,
        steps_per_epoch=11,
        verbose=0,
    ).history["loss"]
    assert losses == pytest.approx(trained.facts["history"]["loss"], abs=1e-6)


def test_serving_takes_raw_examples_and_gives_the_weights_predictions(
    trained, served, raw, make_spec
):
    import numpy as np

    from strategos.components.trainer.loop.state import saved_weights
    from strategos.components.trainer.model import workload
    from strategos.components.trainer.model.user_module import UserModule

    spec = make_spec()
    split = workload.split(spec, spec.eval_files)
    model = UserModule(spec).build_model(workload.context(spec, 1000, 1))
    saved_weights.read(model, str(trained.model / "Format-Weights" / "weights"))
    expected = model(split.sample(300)[0], training=False).numpy()
    answer = served.signatures["serving_default"](raw)
    assert list(answer) == ["predictions"]
    assert answer["predictions"].shape == (300, 1)
    np.testing.assert_allclose(answer["predictions"], expected, atol=1e-6)


def test_serving_needs_neither_the_label_nor_columns_the_model_does_not_use(
    served, raw
):
    import tensorflow as tf

    lean = []
    for record in raw.numpy():
        example = tf.train.Example.FromString(record)
        for name in ("late", "delay"):
            del example.features.feature[name]
        lean.append(example.SerializeToString())
    signature = served.signatures["serving_default"]
    whole, without = signature(raw), signature(tf.constant(lean))
    tf.debugging.assert_equal(whole["predictions"], without["predictions"])


def test_predict_takes_raw_tensors_with_nan_for_a_missing_value(served, raw):
    import tensorflow as tf

    spec = {
        "carrier": tf.io.FixedLenFeature([1], tf.string),
        "distance": tf.io.FixedLenFeature([1], tf.float32),
        "hour": tf.io.FixedLenFeature([1], tf.int64),
        "temp": tf.io.FixedLenFeature([1], tf.float32, float("nan")),
    }
    tensors = tf.io.parse_example(raw, spec)
    answer = served.signatures["predict"](**tensors)
    expected = served.signatures["serving_default"](raw)
    tf.debugging.assert_near(answer["predictions"], expected["predictions"])


def test_transform_features_gives_the_label_too(served, raw):
    features = served.signatures["transform_features"](raw)
    assert set(features) == {"carrier", "distance", "temp", "hour", "late"}
    assert features["late"].numpy().sum() > 0


def test_the_pushed_model_answers_plain_rows(trained):
    from strategos.components.predict import prediction

    rows = [
        {"carrier": "OO", "distance": "2900", "hour": "23", "temp": ""},
        {"carrier": "AA", "distance": "100", "hour": "0", "temp": "9"},
    ]
    late, early = prediction.predict(str(trained.model / "Format-Serving"), rows)
    assert late["predictions"] > 0.5 > early["predictions"]


@pytest.mark.long
def test_users_layers_and_train_step_keep_autograph_and_callbacks_are_called(
    workload, make_spec, warm_tensorflow, monkeypatch, capfd
):
    monkeypatch.setattr(processes, "start", warm_tensorflow.start)
    workload.write_module("fancy", FANCY)
    spec = make_spec(
        module="fancy",
        batch_size=100,
        epochs=2,
        settings=Settings(
            callbacks={"early_stopping": {"monitor": "val_loss", "patience": 5}}
        ),
    )
    facts = local.launch(spec, Operation())
    steps = 2 * -(-facts["rows"] // 100)
    assert facts["steps"] == steps
    assert len(facts["history"]["val_loss"]) == 2
    assert capfd.readouterr().err.count("user saw step") == steps


def test_the_runtime_imports_neither_tfx_nor_beam(script):
    """The warm process, which is forked here, has imported `session` and no more."""
    code = """
import json, sys
assert "tensorflow" in sys.modules
import strategos.components.trainer.run.session
import strategos.components.trainer.run.worker
import strategos.components.infra_validator.probe
tops = ("tfx", "apache_beam", "strategos.pipeline")
print(json.dumps([name for name in tops if name in sys.modules]))
"""
    assert script(code).answer() == []


@pytest.mark.long
def test_a_killed_parent_leaves_no_worker_and_no_model(make_spec, tmp_path):
    spec = make_spec(module="one_unit", epochs=100_000)
    sink = tmp_path / "events"
    parent = f"""
    import json
    from strategos.components import events, processes
    from strategos.components.trainer.launchers import local
    from strategos.components.trainer.spec import WorkerSpec
    events.open_sink({str(sink)!r}, node="Trainer")
    from strategos.components.trainer.operation import Operation
    spec = WorkerSpec.from_json(json.loads({json.dumps(spec.to_json())!r}))
    local.launch(spec, Operation())
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent)], stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not (sink.exists() and "epoch 1" in sink.read_text()):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.2)
    workers = _descendants(process.pid)
    assert len(workers) in (2, 3)  # with the rehearsal of the export
    process.send_signal(signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 10
    while any(_alive(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert list(Path(spec.model_dir).iterdir()) == []


def _descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            children = (task / "children").read_text().split()
            found += [each for c in children for each in (int(c), *_descendants(c))]
    return found


def _alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
