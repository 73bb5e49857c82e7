"""Layer normalization keeps the operations that have kernels on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.trainer.compat import layer_norm

BROKEN = "_MklLayerNorm"

# Its own process: oneDNN is enabled or not when TensorFlow is imported.
CODE = """
    import json, os
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.eager import context
    from strategos.components.trainer.compat import layer_norm

    model = tf.keras.Sequential([
        tf.keras.Input([8, 64]),
        tf.keras.Sequential([tf.keras.layers.LayerNormalization()])])
    rows = tf.constant(np.random.default_rng(1).normal(size=[4, 8, 64]), tf.float32)
    collecting, spec = context.context(), tf.TensorSpec([None, 8, 64])

    def run():
        call = tf.function(lambda x: model(x, training=False), input_signature=[spec])
        collecting.enable_graph_collection()
        answer = call(rows).numpy().tolist()
        ran = collecting.export_run_metadata()
        collecting.disable_graph_collection()
        graphs = [g for each in ran.function_graphs for g in each.partition_graphs]
        return answer, sorted({node.op for graph in graphs for node in graph.node})

    found = []
    for on_gpu in (False, True):
        layer_norm.keep_on_gpu(model, on_gpu)
        found.append(run())
    print(json.dumps(found), flush=True)
    os._exit(0)
"""


@pytest.mark.long
def test_on_a_gpu_only_operations_run_that_exist_there():
    environ = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(CODE)]
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, timeout=120, check=True
    )
    (expected, stock), (found, kept) = json.loads(done.stdout)
    if BROKEN not in stock:
        pytest.skip("TensorFlow does not use oneDNN on this CPU")
    assert BROKEN not in kept
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def options():
    yield
    tf.config.optimizer.set_experimental_options({"remapping": True})


@pytest.mark.parametrize("broken", [False, True])
def test_only_models_that_the_remapper_breaks_do_without_it(options, broken):
    kind = tf.keras.layers.LayerNormalization if broken else tf.keras.layers.ReLU
    inner = tf.keras.Sequential([tf.keras.Input([3]), kind()])
    model = tf.keras.Sequential([tf.keras.Input([3]), inner])
    layer_norm.keep_on_gpu(model)
    layer_norm.keep_on_gpu(model, on_gpu=False)
    is_on = tf.config.optimizer.get_experimental_options
    assert is_on().get("remapping", True)
    layer_norm.keep_on_gpu(model, on_gpu=True)
    assert is_on().get("remapping", True) != broken
