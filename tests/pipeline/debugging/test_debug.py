"""`strategos debug`: one step in this process, with breakpoints and prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib

import pytest

OWN_STEP = """
import tensorflow as tf

class Mine(tf.keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            output = self(x, training=True)
            if tf.reduce_mean(output) > 1e9:
                print("never")
            breakpoint()
            loss = self.compute_loss(x, y, output)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"mine": loss}

def build_model(context):
    inputs = context.inputs()
    used = tf.keras.layers.Dense(1, name="used")
    unused = tf.keras.layers.Dense(1, name="unused")
    output = used(inputs["distance"]) + 0 * tf.stop_gradient(
        unused(inputs["distance"]))
    model = Mine(inputs, output)
    model.compile("adam", "mse")
    return model
"""
LOG_OF_ZERO = """
import tensorflow as tf

def loss(y, p):
    shifted = tf.cast(y, tf.float32)
    return tf.math.log(shifted) * p

def build_model(context):
    inputs = context.inputs()
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(inputs["distance"]))
    model.compile("sgd", loss)
    return model
"""
SHAPES = """
import tensorflow as tf

class Joined(tf.keras.layers.Layer):
    def call(self, x):
        weights = tf.ones([7, 2])
        return x @ weights

def build_model(context):
    inputs = context.inputs()
    class Whole(tf.keras.Model):
        def call(self, features):
            return Joined()(features["distance"])
    model = Whole()
    model.compile("sgd", "mse")
    return model
"""
COLD = [sys.executable, "-m", "strategos.pipeline.cli"]
KERAS_3 = """
import keras

def build_model(context):
    inputs = context.inputs(keras)
    carrier = keras.layers.Embedding(9, 1)(inputs["carrier"])
    joined = keras.layers.concatenate(
        [inputs["distance"], keras.layers.Flatten()(carrier)])
    output = keras.layers.Dense(1, name="three")(joined)
    model = keras.Model(inputs, output)
    model.compile("adam", "mse", metrics=["mae"])
    return model
"""


@pytest.fixture(scope="module")
def folder(copy_workload, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workload")
    rows = (f"{n},{n % 7 / 7},{n % 5},{n % 2}" for n in range(500))
    (folder / "rows.csv").write_text("\n".join(["id,distance,carrier,late", *rows]))
    copy_workload("explained", folder)
    return folder


@pytest.fixture(scope="module")
def debug(folder, warm_tfx):
    """Runs the command on a module: `debug(source, *words)`."""

    def run(source, *words, stdin="", code=0, command=None):
        name = f"model_{zlib.crc32(source.encode())}"
        (folder / f"{name}.py").write_text(source)
        start = command or warm_tfx.cli()
        done = subprocess.run(
            [*start, "debug", "--set", f"trainer.module={name}", *words],
            cwd=folder,
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def _line(text, start):
    (line,) = (x for x in text.splitlines() if x.strip().startswith(start))
    return line


@pytest.mark.long
def test_a_breakpoint_in_an_own_train_step_sees_values_and_lines(debug):
    stdin = "p output.shape, y.shape\nlist\ncontinue\n"
    done = debug(OWN_STEP, stdin=stdin)
    assert "(TensorShape([10, 1]), TensorShape([10, 1]))" in done.stdout
    # The user's own source; from Python 3.13 on, pdb stops one line earlier.
    assert re.search(r"->\t +(breakpoint\(\)|loss = self\.compute_loss)", done.stdout)
    assert "Transform" in done.stderr  # nothing had run yet
    assert "[10, 1]" in _line(done.stdout, "distance")
    assert "None: the loss does not depend on it" in _line(done.stdout, "unused/kern")
    assert "norm" in _line(done.stdout, "used/kernel")
    assert _line(done.stdout, "mine").split()[1] == "float32"


def test_leaving_the_debugger_ends_the_command(debug):
    done = debug(OWN_STEP, stdin="quit\n", code=130)
    assert "strategos: interrupted" in done.stderr


@pytest.mark.long
def test_nan_is_reported_by_tensor_row_and_variable(debug):
    done = debug(LOG_OF_ZERO)
    assert "Transform" not in done.stderr  # its output is taken from the last run
    assert done.stdout.count("  loss  float32  []  1 value NaN or infinite") == 2
    assert "1 value NaN or infinite" in _line(done.stdout, "dense/bias")


@pytest.mark.long
def test_an_error_names_the_line_and_its_values(debug):
    done = debug(SHAPES, "--rows", "4", code=1)
    assert re.search(r"the step fails: \S+\.py:7: InvalidArgumentError", done.stderr)
    assert "{{function_node" not in done.stderr and "[Op:" not in done.stderr
    at = done.stdout.index("variables at")
    assert "[4, 1]" in _line(done.stdout[at:], "x ")
    assert "[7, 2]" in _line(done.stdout[at:], "weights")


@pytest.mark.long
def test_keras_3_takes_the_rows_of_a_later_step(debug):
    done = debug(KERAS_3, "--step", "3", "--rows", "2")
    assert "norm" in _line(done.stdout, "three/kernel")
    assert "[2, 1]" in _line(done.stdout, "three  ")


@pytest.mark.long
@pytest.mark.cold
def test_tf_keras_is_keras_3_by_the_setting(debug):
    source = KERAS_3.replace("import keras", "from tensorflow import keras")
    source = source.replace("context.inputs(keras)", "context.inputs()")
    done = debug(source, "--set", "trainer.keras=3", command=COLD)
    assert "norm" in _line(done.stdout, "three/kernel")
    assert "TF_USE_LEGACY_KERAS" not in done.stderr


@pytest.mark.long
def test_a_loop_of_the_users_own_is_rejected(debug):
    source = f"{KERAS_3}\ndef run_fn(context):\n    pass\n"
    assert "`strategos debug` runs the `train_step`" in debug(source, code=2).stderr
