"""Which values of a metric are better: by its class, as measured by real training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat.callbacks import own
from strategos.components.trainer.loop import callbacks
from strategos.components.trainer.model import known_metrics

keras3 = pytest.importorskip("keras")
PACKAGES = pytest.mark.parametrize("keras", [tf.keras, keras3], ids=["tf", "keras3"])
NEITHER = {"Metric", "Mean", "Sum", "MeanMetricWrapper", "MeanTensor"}


def compiled(keras, metrics, outputs=1, loss="binary_crossentropy"):
    given = keras.Input((2,))
    heads = [
        keras.layers.Dense(1, "sigmoid", name=f"out{number}")(given)
        for number in range(outputs)
    ]
    model = keras.Model(given, heads if outputs > 1 else heads[0])
    model.compile("sgd", loss, metrics=metrics, run_eagerly=True)
    return model


def fitted(model, outputs=1, **arguments):
    draw = np.random.default_rng(0)
    x = draw.random((32, 2)).astype(np.float32)
    y = (x[:, :1] > 0.5).astype(np.float32)
    labels = [y] * outputs if outputs > 1 else y
    model.fit(x, labels, validation_data=(x, labels), verbose=0, **arguments)
    return model


def by_class(keras):
    """The classes of metrics that a Keras package exports, by name."""
    public = (getattr(keras.metrics, name) for name in dir(keras.metrics))
    base = keras.metrics.Metric
    kinds = [x for x in public if isinstance(x, type) and issubclass(x, base)]
    return {kind.__name__: kind for kind in kinds}


@PACKAGES
def test_the_direction_of_each_of_kerass_own_metrics_is_known(keras):
    known = (known_metrics._UP + " " + known_metrics._DOWN).split()
    assert set(by_class(keras)) - NEITHER <= set(known)
    assert len(known) == len(set(known))


def test_directions_are_those_of_keras_3_where_it_has_some():
    arguments = {
        "SensitivityAtSpecificity": (0.5,),
        "SpecificityAtSensitivity": (0.5,),
        "PrecisionAtRecall": (0.5,),
        "RecallAtPrecision": (0.5,),
        "IoU": (2, [0]),
        "MeanIoU": (2,),
        "OneHotIoU": (2, [0]),
        "OneHotMeanIoU": (2,),
    }
    compared = 0
    for name, kind in by_class(keras3).items():
        if name in NEITHER:
            continue
        metric = kind(*arguments.get(name, ()))
        if theirs := getattr(metric, "_direction", None):
            ours = known_metrics._of_metric(metric)
            assert ours == {"up": "max", "down": "min"}[theirs], name
            compared += 1
    assert compared > 20


@PACKAGES
@pytest.mark.parametrize(
    ("metric", "monitor", "expected"),
    [
        ("Recall", "val_recall", "max"),
        ("Precision", "val_precision", "max"),
        ("accuracy", "val_accuracy", "max"),
        ("mse", "val_mse", "min"),
        ("mae", "mae", "min"),
        ("cosine_similarity", "val_cosine_similarity", "max"),
        ("poisson", "val_poisson", "min"),
        ("Recall", "val_loss", "min"),
        ("Recall", "loss", "min"),
    ],
)
def test_direction_comes_from_the_class_of_the_compiled_metric(
    keras, metric, monitor, expected
):
    if metric in ("Recall", "Precision"):
        metric = getattr(keras.metrics, metric)(name=metric.lower())
    model = fitted(compiled(keras, [metric]))
    assert known_metrics.direction(model, monitor) == expected


@PACKAGES
def test_names_that_keras_makes_itself_are_those_of_their_metrics(keras):
    names = ["auc", "auc_1", "number"]
    made = [keras.metrics.AUC(name=names[0]), keras.metrics.AUC(name=names[1])]
    made.append(keras.metrics.FalsePositives(name=names[2]))
    model = fitted(compiled(keras, made))
    found = [known_metrics.direction(model, f"val_{name}") for name in names]
    assert found == ["max", "max", "min"]


@PACKAGES
def test_the_metrics_of_each_output_are_known(keras):
    auc = [[keras.metrics.AUC(name="auc")], [keras.metrics.AUC(name="auc")]]
    losses = ["binary_crossentropy"] * 2
    model = fitted(compiled(keras, auc, outputs=2, loss=losses), outputs=2)
    assert known_metrics.direction(model, "val_out1_auc") == "max"
    assert known_metrics.direction(model, "val_out1_loss") == "min"


def _own(y_true, y_pred):
    return y_pred[:, 0] * 0 + 1.0


@PACKAGES
def test_a_metric_of_ones_own_needs_a_mode(keras):
    class ErrorRate(keras.metrics.BinaryAccuracy):
        def result(self):
            return 1.0 - super().result()

    model = fitted(compiled(keras, [_own, ErrorRate(name="errors")]))
    for name in ("_own", "errors", "lr"):
        assert known_metrics.direction(model, f"val_{name}") is None
    settings = {"best_checkpoint": {"monitor": "val_errors"}}
    judge, _ = callbacks.configured(settings, "", keras)
    judge.set_model(model)
    for early in (True, False):
        with pytest.raises(UserError, match=r"best_checkpoint.mode: received auto"):
            judge.on_train_begin() if early else judge.on_epoch_end(
                0, {"val_errors": 0.5}
            )
    settings = {"best_checkpoint": {"monitor": "val_errors", "mode": "min"}}
    judge, best = callbacks.configured(settings, "", keras)
    judge.set_model(model)
    judge.on_epoch_end(0, {"val_errors": 0.5})
    assert best.monitor_op(0.1, 0.2)


class Told(tf.keras.callbacks.Callback):
    """Sets the metric of each epoch."""

    def __init__(self, name, values):
        super().__init__()
        self.name, self.values = name, values

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = self.values[epoch]


@pytest.mark.parametrize("mode", ["auto", "max"])
@PACKAGES
def test_a_rising_recall_neither_stops_training_nor_lowers_the_rate(keras, mode):
    """Three epochs better, then two without improvement."""
    model = compiled(keras, [keras.metrics.Recall(name="recall")])
    values = [0.1, 0.2, 0.3, 0.25, 0.26, 0.27]
    asked = {"monitor": "val_recall", "patience": 2, "mode": mode}
    settings = {
        "early_stopping": asked,
        "best_checkpoint": {"monitor": "val_recall", "mode": mode},
        "reduce_learning_rate": {**asked, "factor": 0.5, "min_lr": 0.0},
    }
    told = [Told("val_recall", values), *callbacks.configured(settings, "", keras)]
    stopper, best = (own(told[i]) for i in (4, 6))
    rates = []

    class Rates(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            rates.append(float(np.array(model.optimizer.learning_rate)))

    group = tf.keras.callbacks.CallbackList([*told, Rates()], model=model)
    model.stop_training = False
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    group.on_train_begin()
    for epoch in range(len(values)):
        logs = model.evaluate(x, y, verbose=0, return_dict=True)
        group.on_epoch_end(epoch, {f"val_{k}": v for k, v in logs.items()})
        if model.stop_training:
            break
    assert epoch == 4 and stopper.stopped_epoch == 4
    assert best.best == 0.3
    assert rates == pytest.approx([0.01] * 4 + [0.005])
