"""Computes the model's features from the columns of `data.py`, by TensorFlow Transform.

Each analyzer is a pass over the data and costs about a second even for little data. The
module has three: the vocabulary of destinations, the quantiles of the distance, and the
moments of all numbers at once. Carriers and origins come from the schema instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import tensorflow as tf
import tensorflow_transform as tft
from features import (
    CARRIERS,
    CROSS_BUCKETS,
    DISTANCE_BUCKETS,
    ORIGINS,
    USUAL_WEATHER,
)

Tensors = Mapping[str, tf.Tensor | tf.SparseTensor]

_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def preprocessing_fn(inputs: Tensors) -> dict[str, tf.Tensor]:
    """Returns the features of `model.py` and the label `late`, each `[batch, n]`.

    | feature | dtype | content |
    |---|---|---|
    | carrier, origin | int64[1] | index in the schema's domain; its length if unknown |
    | dest | int64[1] | index in the vocabulary of the training data |
    | carrier_at_origin | int64[1] | cross of the two, hashed |
    | distance_bucket | int64[1] | decile |
    | hour, day_of_year | int64[1] | of the scheduled departure |
    | numeric | float32[9] | z-scores: distance, and the weather |
    | cyclic | float32[10] | sine and cosine of times and of the wind's direction |
    """
    day = _day_of_year(inputs["month"], inputs["day"])
    at_origin = tf.strings.join([inputs["carrier"], inputs["origin"]], separator="@")
    return {
        "carrier": _index_in(CARRIERS, inputs["carrier"]),
        "origin": _index_in(ORIGINS, inputs["origin"]),
        "dest": tft.compute_and_apply_vocabulary(
            inputs["dest"], num_oov_buckets=1, vocab_filename="dest"
        ),
        "carrier_at_origin": tft.hash_strings(at_origin, CROSS_BUCKETS),
        "distance_bucket": tft.bucketize(inputs["distance"], DISTANCE_BUCKETS),
        "hour": inputs["hour"],
        "day_of_year": day,
        "numeric": tft.scale_to_z_score(_numbers(inputs), elementwise=True),
        "cyclic": _cycles(inputs, day),
        "late": inputs["late"],
    }


def _numbers(inputs: Tensors) -> tf.Tensor:
    weather = [_dense(inputs[name], usual) for name, usual in USUAL_WEATHER.items()]
    return tf.concat([_float(inputs["distance"]), *weather], axis=1)


def _cycles(inputs: Tensors, day: tf.Tensor) -> tf.Tensor:
    """Times as points on a circle, so that 23:59 is next to 0:00."""
    departure = inputs["hour"] * 60 + inputs["minute"]
    wind = _dense(inputs["wind_dir"], -1.0)
    blowing = tf.where(wind < 0, 0.0, _on_circle(wind, 360))
    return tf.concat(
        [
            _on_circle(departure, 24 * 60),
            _on_circle(inputs["arrival"], 24 * 60),
            _on_circle(inputs["weekday"], 7),
            _on_circle(day, 365),
            blowing,
        ],
        axis=1,
    )


def _on_circle(value: tf.Tensor, period: float) -> tf.Tensor:
    angle = _float(value) * (2 * math.pi / period)
    return tf.concat([tf.sin(angle), tf.cos(angle)], axis=1)


def _day_of_year(month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    return tf.gather(tf.constant(_DAYS_BEFORE_MONTH, tf.int64), month - 1) + day


def _index_in(domain: Sequence[str], value: tf.Tensor) -> tf.Tensor:
    """The index of each value `[batch, 1]` in `domain`; `len(domain)` if unknown."""
    same = tf.cast(tf.equal(value, tf.constant([domain])), tf.int64)
    unknown = 1 - tf.reduce_sum(same, axis=1, keepdims=True)
    return tf.argmax(tf.concat([same, unknown], axis=1), axis=1)[:, tf.newaxis]


def _dense(value: tf.SparseTensor, missing: float) -> tf.Tensor:
    """Makes a column with at most one value per row dense, `[batch, 1]`."""
    rows = tf.SparseTensor(value.indices, value.values, [value.dense_shape[0], 1])
    return tf.sparse.to_dense(rows, default_value=missing)


def _float(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32)
