"""Training on a GPU: the curve of the CPU, bit for bit again, and its neighbours."""

from __future__ import annotations

import functools
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.distribution.environment import visible_gpus
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import Settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not visible_gpus(), reason="a GPU is needed: `make test-gpu` on such a machine"
    ),
]

# An embedding, and layer normalization as in a transformer. TF32 would round the
# products to three digits.
NETWORK = """
import tensorflow as tf

tf.config.experimental.enable_tensor_float_32_execution(False)

def build_model(context):
    inputs, layers = context.inputs(), tf.keras.layers
    carriers = context.vocabulary_size("carrier") + 1
    words = layers.Embedding(carriers, 8)(inputs["carrier"])
    words = layers.LayerNormalization()(layers.Dense(16)(words))
    hidden = layers.Concatenate()([layers.Flatten()(words), inputs["distance"]])
    hidden = layers.Dense(16, "relu")(hidden)
    model = tf.keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden))
    model.compile(tf.keras.optimizers.Adam(1e-2), "binary_crossentropy",
                  metrics=[tf.keras.metrics.AUC(name="auc")])
    return model
"""

READ = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.records import read

    found = [b.numpy().tolist() for b in read.batches(sys.argv[1:], 2)]
    print(json.dumps([len(tf.config.get_visible_devices("GPU")), str(found)]))
    sys.stdout.flush()
    os._exit(0)
"""


BESIDE = """
    import json, os, sys
    import tensorflow as tf
    from strategos.components.container import warm_start

    warm_start.prepare()
    device = tf.reduce_sum(tf.ones([3])).device
    print(json.dumps([device[-5:], os.environ["CUDA_VISIBLE_DEVICES"]]), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def run(workload, make_spec):
    """Trains: `run(distribution, gpus=…, **settings)` → facts, weights."""
    workload.write_module("on_gpu", NETWORK)

    def run(distribution, gpus="0", **settings):
        spec = make_spec(
            module="on_gpu",
            batch_size=100,
            epochs=3,
            distribution=distribution,
            settings=Settings(**settings),
            hyperparameters={},
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", gpus)
            facts = launch(spec, Operation())
        reader = tf.train.load_checkpoint(f"{spec.model_dir}/Format-Weights/weights")
        names = sorted(reader.get_variable_to_shape_map())
        kept = [n for n in names if "OBJECT_GRAPH" not in n]
        return facts, [reader.get_tensor(name) for name in kept]

    return run


@pytest.fixture(scope="module")
def on_cpu(run):
    return functools.cache(lambda: run({"strategy": "one_device"}, gpus="-1"))


@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "central_storage"])
def test_the_curve_is_that_of_the_cpu(run, on_cpu, strategy):
    facts, _ = run({"strategy": strategy, "devices": 1})
    expected, _ = on_cpu()
    for name in ("loss", "val_loss", "auc", "val_auc"):
        found = facts["history"][name]
        np.testing.assert_allclose(found, expected["history"][name], rtol=1e-3)
    assert "1 GPU" in facts["reason"]


def test_deterministic_runs_are_equal_to_the_last_bit(run):
    first, second = (run({}, deterministic=True) for _ in range(2))
    assert first[0]["history"] == second[0]["history"]
    for one, other in zip(first[1], second[1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_export_answers_as_a_model_of_mixed_precision(run, precision):
    facts, _ = run({}, mixed_precision=precision)
    last = facts["history"]["val_loss"][-1]
    assert facts["evaluation"]["loss"] == pytest.approx(last, rel=5e-2)


def test_files_are_read_in_a_process_with_a_gpu(warm_tensorflow, tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "0")) as writer:
        for record in (b"1", b"2", b"3"):
            writer.write(record)
    code = textwrap.dedent(READ)
    gpus, found = warm_tensorflow.script(code, str(tmp_path / "0")).answer()
    assert (gpus, found) == (len(visible_gpus()), str([[b"1", b"2"], [b"3"]]))


def test_the_process_that_runs_nodes_uses_no_gpu_and_hides_none(warm_tfx):
    started = warm_tfx.script(textwrap.dedent(BESIDE), CUDA_VISIBLE_DEVICES="0")
    assert started.answer() == ["CPU:0", "0"]
