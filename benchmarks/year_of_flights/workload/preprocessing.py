"""Features with the same meaning and shape in each month, as a warm start needs them.

Nothing depends on the rows: no vocabulary, no moments.
"""

from __future__ import annotations

import math

import tensorflow as tf
import tensorflow_transform as tft

BUCKETS = 256
_SCALES = {  # usual value, spread
    "distance": (1040.0, 730.0),
    "temp": (56.0, 18.0),
    "dewp": (41.0, 19.0),
    "humid": (60.0, 20.0),
    "wind_speed": (10.0, 5.5),
    "wind_gust": (0.0, 12.0),
    "precip": (0.0, 0.05),
    "pressure": (1018.0, 7.5),
    "visib": (10.0, 2.0),
}


def preprocessing_fn(inputs):
    """Returns hashed names, the hour, scaled numbers and the label."""
    at_origin = tf.strings.join([inputs["carrier"], inputs["origin"]], separator="@")
    numbers = [
        (_dense(inputs[name], usual) - usual) / spread
        for name, (usual, spread) in _SCALES.items()
    ]
    hour = tf.cast(inputs["hour"], tf.float32) * (2 * math.pi / 24)
    weekday = tf.cast(inputs["weekday"], tf.float32) * (2 * math.pi / 7)
    cycles = [wave(angle) for angle in (hour, weekday) for wave in (tf.sin, tf.cos)]
    return {
        "carrier_at_origin": tft.hash_strings(at_origin, BUCKETS),
        "dest": tft.hash_strings(inputs["dest"], BUCKETS),
        "hour": inputs["hour"],
        "numeric": tf.concat([*numbers, *cycles], axis=1),
        "late": inputs["late"],
    }


def _dense(values, usual):
    if isinstance(values, tf.SparseTensor):
        shape = [values.dense_shape[0], 1]
        values = tf.SparseTensor(values.indices, values.values, shape)
        values = tf.sparse.to_dense(tf.cast(values, tf.float32), usual)
    return tf.cast(values, tf.float32)
