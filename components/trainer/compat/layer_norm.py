"""Keeps layer normalization on a GPU away from oneDNN, which has no kernels there.

In graphs that only predict, TensorFlow's graph optimizer ("remapper") replaces the
operations of tf-keras's `LayerNormalization` by one of oneDNN, if oneDNN is enabled: on
CPUs with AVX512_VNNI by default. It does so on GPUs too, and evaluation fails: "No
registered '_MklLayerNorm' OpKernel for 'GPU'" (tensorflow/tensorflow#62607; seen with
2.21).
"""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from strategos.components.trainer.compat import compiled


def keep_on_gpu(model: tf.keras.Model, on_gpu: bool | None = None) -> None:
    """Turns the remapper off in this process for a model that it breaks.

    Args:
      model: A model of either Keras, before its functions run.
      on_gpu: Whether the model runs on a GPU; by default, whether one is visible.
    """
    if on_gpu is None:
        on_gpu = bool(tf.config.get_visible_devices("GPU"))
    kind = tf_keras.layers.LayerNormalization
    if on_gpu and any(isinstance(layer, kind) for layer in compiled.layers(model)):
        tf.config.optimizer.set_experimental_options({"remapping": False})
