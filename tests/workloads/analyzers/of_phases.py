"""Analyzers of what earlier analyzers gave, by files and by numbers."""

import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    x, key = inputs["x"], inputs["key"]
    near = x - tft.mean(x)
    scaled = near / tft.max(near)
    ids = tft.compute_and_apply_vocabulary(key, vocab_filename="first", top_k=3)
    crossed = tf.strings.join(
        [tf.strings.as_string(ids), tf.strings.as_string(tft.bucketize(scaled, 3))], "x"
    )
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([5.0])), -1.0
    )
    return {
        "scaled": tft.scale_to_z_score(scaled),
        "crossed": tft.compute_and_apply_vocabulary(crossed, vocab_filename="second"),
        "ids": tft.scale_to_0_1(tf.cast(ids, tf.float32)),
        "looked_up": tft.scale_to_z_score(table.lookup(key)),
        "plain": inputs["tokens"],
    }
