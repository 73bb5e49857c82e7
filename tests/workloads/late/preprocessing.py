import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    temp = inputs["temp"]
    rows = tf.SparseTensor(temp.indices, temp.values, [temp.dense_shape[0], 1])
    carrier = tft.compute_and_apply_vocabulary(
        inputs["carrier"], num_oov_buckets=1, vocab_filename="carrier"
    )
    return {
        "carrier": carrier,
        "distance": tft.scale_to_z_score(inputs["distance"]),
        "temp": tf.squeeze(tf.sparse.to_dense(rows), 1),
        "hour": inputs["hour"],
        "late": inputs["late"],
    }
