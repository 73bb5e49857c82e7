import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    x, n, key, matrix = (inputs[name] for name in ("x", "n", "key", "matrix"))
    scalar, keys = tf.squeeze(x, 1), tf.squeeze(key, 1)
    flat = tf.reshape(matrix, [-1, 6])
    bounds = tft.quantiles(x, 4, epsilon=0.01)
    counted, count = tft.count_per_key(keys)
    return {
        "row": inputs["row"],
        "z": tft.scale_to_z_score(x),
        "z_matrix": tft.scale_to_z_score(matrix, elementwise=True),
        "z_sparse": tft.scale_to_z_score(inputs["maybe"]),
        "z_ragged": tft.scale_to_z_score(inputs["pairs"]),
        "z_per_key": tft.scale_to_z_score_per_key(scalar, keys),
        "min_max": tft.scale_by_min_max(x, -1.0, 1.0),
        "min_max_per_key": tft.scale_by_min_max_per_key(scalar, keys),
        "zero_one": tft.scale_to_0_1(tf.cast(n, tf.float32)),
        "gaussian": tft.scale_to_gaussian(x),
        "buckets": tft.bucketize(x, 4, epsilon=0.01),
        "buckets_sparse": tft.bucketize(inputs["maybe"], 3, epsilon=0.01),
        "buckets_per_key": tft.bucketize_per_key(scalar, keys, 3, epsilon=0.01),
        "buckets_special": tft.apply_buckets(
            inputs["special"], tf.constant([[-1.0, 0.0, 1.0]])
        ),
        "quantiles": tf.tile(bounds, [tf.shape(x)[0], 1]),
        "interpolated": tft.apply_buckets_with_interpolation(x, bounds),
        "pca": tf.matmul(flat, tft.pca(flat, 2, tf.float32)),
        "covariance": tf.matmul(flat, tft.covariance(flat, tf.float32)),
        "sum": x + tft.sum(x),
        "range": n - tft.min(n) + tft.max(n),
        "size": n + tf.cast(tft.size(n), tf.int64),
        "counts": n + tf.reduce_sum(count) + tf.size(counted, tf.int64),
        "matrix_t": tf.transpose(matrix, [0, 2, 1]),
        "scalar": scalar,
        "empty": tf.zeros_like(matrix)[:, :, :0],
        "special": inputs["special"],
        "special_sparse": tf.sparse.from_dense(inputs["special"]),
        "big": inputs["big"],
        "maybe": inputs["maybe"],
        "density": tft.estimated_probability_density(x, boundaries=4),
    }
