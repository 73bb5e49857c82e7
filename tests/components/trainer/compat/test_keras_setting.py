"""`trainer.keras: 3`: `tf.keras` in the user's module is Keras 3."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.launchers import local
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import session
from strategos.components.trainer.spec import Settings

MODEL = """
{imported}

def build_model(context):
    hour = keras.Input((1,), name="hour")
    assert type(context.inputs({given})["hour"]) is type(hour)
    model = keras.Sequential([
        hour,
        keras.layers.Rescaling(1 / 24),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1, activation="sigmoid"),
    ])
    adam = keras.optimizers.Adam(1e-2)
    model.compile(adam, "binary_crossentropy", metrics=["accuracy"])
    return model

class Seen(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("seen", type(self.model).__module__, sorted(logs))

def callbacks(context):
    return [Seen()]
"""
CALLBACKS = {
    "early_stopping": {"monitor": "val_loss", "patience": 5},
    "reduce_learning_rate": {"monitor": "val_loss", "patience": 1},
    "tensorboard": {},
    "csv": True,
}
MIXED = {
    "functional": """
    import keras, tf_keras
    def build_model(context):
        inputs = context.inputs(keras)
        output = tf_keras.layers.Dense(1, name="mine")(inputs["hour"])
        return keras.Model(inputs, output)
    """,
    "attribute": """
    import keras, tf_keras
    class Mine(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = {"a": [tf_keras.layers.Dense(1, name="mine")]}
        def call(self, x):
            return self.parts["a"][0](x)
    def build_model(context):
        inputs = {"hour": context.inputs(keras)["hour"]}
        model = keras.Model(inputs, Mine()(inputs["hour"]))
        model.compile("adam", "mse")
        return model
    """,
    "context": """
    import keras
    def build_model(context):
        inputs = context.inputs(keras)
        output = context.dropout(0.5)(inputs["hour"])
        return keras.Model(inputs, output)
    """,
}


WITHOUT_PACKAGE = {
    "model": """
    import keras
    def build_model(context):
        inputs = context.inputs()
        return keras.Model(inputs, keras.layers.Dense(1)(inputs["hour"]))
    """,
    "inputs": """
    import keras
    def build_model(context):
        return keras.Model(context.inputs(), keras.Input((1,)))
    """,
}
INSIDE = """
def build_model(context):
    import keras
    inputs = {"hour": context.inputs(keras)["hour"]}
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs["hour"]))
    model.compile("adam", "mse")
    return model
"""


WORKER = """
import tensorflow as tf
from strategos.components.worker_process import serve
serve(lambda request: {"module": tf.keras.Model.__module__})
"""
STARTS = """
import json
import tensorflow
from strategos.components import fork_server, worker_process

fork_server.start()
for keras in (None, 3):
    env = worker_process.tensorflow(keras)
    print(worker_process.run("a_worker", {}, name="a", env=env)["module"])
"""
SEEDED = """
import pickle
from strategos.components.trainer.run import session

model, _ = session.untrained(pickle.loads({spec}), "one_device", 1)
print(model.get_weights())
"""


@pytest.fixture(scope="module")
def warm_starts():
    """Nothing starts warm: warm processes have tf-keras as `tf.keras`."""


@pytest.fixture(scope="module")
def train(workload, make_spec):
    """Trains and exports MODEL: `train(name, imported, given, **settings)`."""

    def run(name, imported, given="", **settings):
        workload.write_module(name, MODEL.format(imported=imported, given=given))
        device = {"strategy": "one_device"}
        settings = Settings(callbacks=CALLBACKS, **settings)
        spec = make_spec(module=name, distribution=device, settings=settings)
        return spec, local.launch(spec, Operation())

    return run


def _weights(spec):
    reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
    names = reader.get_variable_to_shape_map()
    return {x: reader.get_tensor(x) for x in names if "OBJECT_GRAPH" not in x}


def _served(spec):
    served = tf.saved_model.load(f"{spec.model_dir}/Format-Serving")
    return served.signatures["serving_default"]


@pytest.mark.long
@pytest.mark.cold
def test_tf_keras_trains_to_the_bits_of_the_package_keras(train, workload, capfd):
    imported = "import tensorflow as tf\nkeras = tf.keras"
    spec, facts = train("by_tf_keras", imported, keras=3)
    said = capfd.readouterr().err
    assert "seen keras.src.models.sequential ['accuracy'," in said
    assert "TF_USE_LEGACY_KERAS" not in said  # TFT demands it
    its_spec, its_facts = train("by_keras", "import keras", "keras")
    for name in ("history", "evaluation", "weights_epoch", "parameters"):
        assert facts[name] == its_facts[name]
    theirs = _weights(its_spec)
    assert theirs
    for name, value in _weights(spec).items():
        np.testing.assert_array_equal(value, theirs[name])
    raw = next(iter(tf.data.TFRecordDataset(workload.raw("eval"), "GZIP").batch(300)))
    ours, other = (_served(each)(raw)["predictions"] for each in (spec, its_spec))
    np.testing.assert_array_equal(ours, other)


@pytest.mark.long
@pytest.mark.cold
def test_a_process_that_forks_others_starts_a_new_one_for_keras_3(tmp_path):
    (tmp_path / "a_worker.py").write_text(WORKER)
    own = {**worker_process.TENSORFLOW, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", STARTS],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    of_none, of_3 = done.stdout.split()
    assert of_none.startswith("tf_keras.") and of_3.startswith("keras.")


@pytest.mark.parametrize("name", MIXED)
def test_a_layer_of_tf_keras_in_a_keras_3_model_is_rejected(workload, make_spec, name):
    workload.write_module(f"mixed_{name}", MIXED[name])
    spec = make_spec(module=f"mixed_{name}")
    message = rf"mixed_{name}.py: `build_model`: uses a layer of tf-keras, `\w+`"
    if name == "context":
        message += r".*`context.dropout\(…, keras=keras\)` makes one of Keras 3"
    with pytest.raises(UserError, match=message):
        session.untrained(spec, "one_device", 1)


@pytest.mark.parametrize("name", WITHOUT_PACKAGE)
def test_inputs_of_tf_keras_in_keras_3_name_the_argument(workload, make_spec, name):
    workload.write_module(f"without_{name}", WITHOUT_PACKAGE[name])
    spec = make_spec(module=f"without_{name}")
    message = rf"without_{name}.py: `build_model`: passes a tensor of tf-keras to Keras"
    with pytest.raises(UserError, match=rf"{message} 3.*context.inputs\(keras\)"):
        session.untrained(spec, "one_device", 1)


@pytest.mark.long
@pytest.mark.cold
def test_the_seed_holds_where_only_build_model_imports_keras(workload, make_spec):
    workload.write_module("inside", INSIDE)
    spec = make_spec(module="inside")
    made = [SEEDED.format(spec=pickle.dumps(spec)) for _ in range(2)]
    env = {**os.environ, **worker_process.TENSORFLOW}
    weights = [
        subprocess.check_output([sys.executable, "-c", x], env=env, text=True)
        for x in made
    ]
    assert weights[0] == weights[1] and "[[" in weights[0]
