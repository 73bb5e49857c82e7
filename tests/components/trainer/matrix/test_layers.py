"""Each layer of tf-keras trains under each strategy, and exports (mark.matrix)."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from strategos.components.errors import UserError
from strategos.components.trainer.launchers import launch
from strategos.components.trainer.operation import Operation

STRATEGIES = {
    "one_device": {"strategy": "one_device"},
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "central_storage": {"strategy": "central_storage", "devices": 2},
    "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "workers": 2},
    "parameter_server": {
        "strategy": "parameter_server",
        "workers": 1,
        "parameter_servers": 1,
    },
}

# Calls of layers, by the layer's name and the case: `x` is float32[batch, 8], `t` the
# same as [batch, 4, 2], `i` an image [batch, 4, 2, 1], `v` a video [batch, 2, 2, 2, 1],
# `k` int64[batch, 1] from 0 to 23, `s` its text.
_SHAPES = {1: "t", 2: "i", 3: "v"}
_PLAIN = (
    *("ActivityRegularization", "BatchNormalization", "ELU", "Flatten", "Identity"),
    *("LayerNormalization", "LeakyReLU", "PReLU", "ReLU", "Softmax"),
    *("ThresholdedReLU", "UnitNormalization"),
)
_MERGING = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply")
_NOISE = ("AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise")
_BY_DIMENSIONS = {
    "AveragePooling": "2",
    "Conv": "2, 2",
    "ConvTranspose": "2, 2",
    "GlobalAveragePooling": "",
    "GlobalMaxPooling": "",
    "MaxPooling": "2",
    "SpatialDropout": "0.1",
    "UpSampling": "",
    "ZeroPadding": "",
}
_ON_IMAGES = {
    "CenterCrop": "2, 2",
    "RandomBrightness": "0.1",
    "RandomContrast": "0.1",
    "RandomCrop": "2, 2",
    "RandomFlip": "",
    "RandomRotation": "0.1",
    "RandomTranslation": "0.1, 0.1",
    "RandomZoom": "0.1",
    "Resizing": "2, 2",
}


def _dimensional(kind: str, n: int) -> str:
    return f"Conv{n}DTranspose" if kind == "ConvTranspose" else f"{kind}{n}D"


CALLS = {
    **{name: f"L.{name}()(x)" for name in _PLAIN},
    **{name: f"L.{name}()([x, 2 * x])" for name in (*_MERGING, "Subtract")},
    **{name: f"L.{name}(0.1)(x)" for name in _NOISE},
    **{name: f"L.{name}(4)(t)" for name in ("GRU", "LSTM", "SimpleRNN")},
    **{name: f"L.{name}({given})(i)" for name, given in _ON_IMAGES.items()},
    **{
        _dimensional(kind, n): f"L.{_dimensional(kind, n)}({given})({x})"
        for kind, given in _BY_DIMENSIONS.items()
        for n, x in _SHAPES.items()
    },
    "Activation": "L.Activation('tanh')(x)",
    "AdditiveAttention": "L.AdditiveAttention()([t, t])",
    "Attention": "L.Attention()([t, t])",
    "BatchNormalization, synchronized": "L.BatchNormalization(synchronized=True)(x)",
    "Bidirectional": "L.Bidirectional(L.LSTM(2))(t)",
    "CategoryEncoding": "L.CategoryEncoding(24)(k)",
    "ConvLSTM1D": "L.ConvLSTM1D(2, 1)(tf.expand_dims(t, -1))",
    "ConvLSTM2D": "L.ConvLSTM2D(2, 1)(v)",
    "ConvLSTM3D": "L.ConvLSTM3D(2, 1)(tf.expand_dims(v, -1))",
    "Cropping1D": "L.Cropping1D(1)(t)",
    "Cropping2D": "L.Cropping2D(((1, 1), (0, 0)))(i)",
    "Cropping3D": "L.Cropping3D(((1, 0), (0, 0), (0, 0)))(v)",
    "Dense": "L.Dense(4)(x)",
    "DepthwiseConv1D": "L.DepthwiseConv1D(2)(t)",
    "DepthwiseConv2D": "L.DepthwiseConv2D(2)(i)",
    "Discretization": "L.Embedding(3, 2)(L.Discretization([0.0, 0.5])(x))",
    "Discretization, adapted": (
        "L.Embedding(5, 2)(adapted(L.Discretization(num_bins=5), N[:, None])(x))"
    ),
    "Dot": "L.Dot(1)([x, x])",
    "EinsumDense": "L.EinsumDense('ab,bc->ac', 4)(x)",
    "Embedding": "L.Embedding(24, 3)(k)",
    "Embedding, masked": "L.LSTM(2)(L.Embedding(24, 3, mask_zero=True)(k))",
    "GroupNormalization": "L.GroupNormalization(2)(t)",
    "HashedCrossing": "L.Embedding(9, 2)(L.HashedCrossing(9)((s, k)))",
    "Hashing": "L.Embedding(9, 2)(L.Hashing(9)(s))",
    "IntegerLookup": "L.Embedding(25, 2)(L.IntegerLookup(vocabulary=[*range(24)])(k))",
    "IntegerLookup, adapted": (
        "L.Embedding(25, 2)(adapted(L.IntegerLookup(), [*range(24)])(k))"
    ),
    "Lambda": "L.Lambda(lambda y: y * 2)(x)",
    "LocallyConnected1D": "L.LocallyConnected1D(2, 2)(t)",
    "LocallyConnected2D": "L.LocallyConnected2D(2, 2)(i)",
    "Masking": "L.LSTM(2)(L.Masking()(t))",
    "MultiHeadAttention": "L.MultiHeadAttention(2, 2)(t, t)",
    "Normalization": "L.Normalization(mean=0.5, variance=2.0)(x)",
    "Normalization, adapted": "adapted(L.Normalization(axis=None), N[:, None])(x)",
    "Permute": "L.Permute((2, 1))(t)",
    "RNN": "L.RNN(L.GRUCell(2))(t)",
    "RNN, of several cells": "L.RNN([L.LSTMCell(2), L.SimpleRNNCell(2)])(t)",
    "RandomHeight": "L.GlobalMaxPooling2D()(L.RandomHeight(0.1)(i))",
    "RandomWidth": "L.GlobalMaxPooling2D()(L.RandomWidth(0.1)(i))",
    "RepeatVector": "L.RepeatVector(2)(x)",
    "Rescaling": "L.Rescaling(0.5)(x)",
    "Reshape": "L.Reshape((2, 4))(x)",
    "SeparableConv1D": "L.SeparableConv1D(2, 2)(t)",
    "SeparableConv2D": "L.SeparableConv2D(2, 2)(i)",
    "SpectralNormalization": "L.SpectralNormalization(L.Dense(4))(x)",
    "StackedRNNCells": "L.RNN(L.StackedRNNCells([L.LSTMCell(2)]))(t)",
    "StringLookup": "L.Embedding(9, 2)(L.StringLookup(vocabulary=['1', '2'])(s))",
    "StringLookup, adapted": (
        "L.Embedding(9, 2)(adapted(L.StringLookup(), ['1', '2'])(s))"
    ),
    "StringLookup, adapted, of counts": (
        "adapted(L.StringLookup(output_mode='tf_idf'), ['1', '2'])(s)"
    ),
    "TextVectorization": (
        "L.Embedding(9, 2)(L.TextVectorization("
        "vocabulary=['1', '2'], output_sequence_length=1)(s))"
    ),
    "TextVectorization, adapted": (
        "L.Embedding(9, 2)(adapted(L.TextVectorization("
        "output_sequence_length=1), ['1', '2'])(s))"
    ),
    "TimeDistributed": "L.TimeDistributed(L.Dense(2))(t)",
}

_NO_LAYERS = {  # bases, cells inside RNN, inputs, and what takes no tensors of features
    *("Layer", "Wrapper", "AbstractRNNCell", "GRUCell", "LSTMCell", "SimpleRNNCell"),
    *("Input", "InputLayer", "InputSpec", "DenseFeatures"),
}

MODULE = """
import numpy as np
import tensorflow as tf

L, N = tf.keras.layers, np.linspace(-2, 2, 100)

def adapted(layer, values):
    layer.adapt(np.asarray(values))
    return layer

def build_model(context):
    inputs = context.inputs()
    k = inputs["hour"]
    s = tf.strings.as_string(k)
    x = tf.tile(L.Concatenate()([inputs["distance"], inputs["temp"] / 10]), [1, 4])
    t, i, v = (L.Reshape(n)(x) for n in ((4, 2), (4, 2, 1), (2, 2, 2, 1)))
    names, calls = {**globals(), **locals()}, context.hyperparameters["calls"]
    called = [L.Flatten()(eval(call, names)) for call in calls]
    hidden = L.Concatenate()([x, *(tf.cast(each, tf.float32) for each in called)])
    model = tf.keras.Model(inputs, L.Dense(1, "sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy", metrics=["AUC"])
    return model
"""


@pytest.fixture(scope="module")
def train(workload, make_spec, train_only):
    """Trains and exports a model with some layers: `train(layers, strategy)`.

    The rehearsal of the export does not depend on the strategy.
    """
    Path(workload.folder, "layers.py").write_text(MODULE)

    def train(layers, strategy, export="1"):
        spec = make_spec(
            module="layers",
            epochs=1,
            distribution=STRATEGIES[strategy],
            hyperparameters={"calls": [CALLS[layer] for layer in layers]},
        )
        operation = Operation(max_restarts=0)
        if strategy == "one_device":
            return launch(spec, operation)
        return train_only(spec, operation, EXPORT=export)

    return train


def test_every_layer_of_tf_keras_is_in_the_table():
    import tensorflow as tf

    kinds = {n for n, x in vars(tf.keras.layers).items() if inspect.isclass(x)}
    aliases = {n for n in kinds if vars(tf.keras.layers)[n].__name__ != n}
    assert kinds - aliases - _NO_LAYERS == {x.partition(",")[0] for x in CALLS}


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [
        ("SpectralNormalization", "one_device"),
        ("TextVectorization, adapted", "one_device"),
        ("StringLookup, adapted", "parameter_server"),
        ("Discretization, adapted", "parameter_server"),
    ],
)
def test_a_layer_trains_and_exports(train, layer, strategy):
    assert "auc" in train([layer], strategy)["evaluation"]


# TensorFlow's own limits: these layers assign variables in each replica.
REJECTED = {
    ("RandomCrop", "central_storage"): "`merge_call` called",
    ("SpectralNormalization", "central_storage"): "an aggregation method",
}
PARTS = 4


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_layers_train_and_export(train, part, strategy):
    """In models of a quarter of the layers each: a gang for each takes too long.

    The model is always exported from weights in files, on one device: a SavedModel of
    each layer is written after the trainings on one device. After the others, a model
    that is built from the weights answers and measures as the trained one did.
    """
    layers = [x for x in list(CALLS)[part::PARTS] if (x, strategy) not in REJECTED]
    assert "auc" in train(layers, strategy, export="measured")["evaluation"]


@pytest.mark.matrix
@pytest.mark.parametrize(("layer", "strategy"), REJECTED)
def test_a_layer_that_tensorflow_rejects_is_named(train, layer, strategy):
    with pytest.raises(UserError, match=REJECTED[layer, strategy]):
        train([layer], strategy)
