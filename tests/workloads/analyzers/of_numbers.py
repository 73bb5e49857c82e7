import tensorflow as tf
import tensorflow_transform as tft


def _column(inputs, value):
    """A value of the whole data set as a column."""
    return tf.zeros_like(inputs["x"]) + tf.cast(value, tf.float32)


def preprocessing_fn(inputs):
    x, n, pair, key = (inputs[name] for name in ("x", "n", "pair", "key"))
    several, weights = inputs["several"], inputs["w"]
    flat, flat_x = tf.reshape(key, [-1]), tf.reshape(x, [-1])

    def everywhere(values):
        return tf.zeros_like(pair[:, :1]) + tf.reshape(
            tf.cast(values, tf.float32), [1, -1]
        )

    keys, sizes = tft.count_per_key(flat)
    counts, edges = tft.histogram(x, boundaries=4)
    frequencies, names = tft.histogram(flat, categorical=True)
    return {
        "moments": _column(inputs, tft.mean(x) * tft.var(pair)),
        "range": _column(inputs, tft.min(n) * 10 + tft.max(n)),
        "total": _column(inputs, tft.sum(several) + tf.cast(tft.size(n), tf.float32)),
        "of_columns": everywhere(tft.sum(pair, reduce_instance_dims=False)),
        "tukey": _column(inputs, tft.tukey_location(x) + tft.tukey_scale(x)),
        "tukey_h": _column(inputs, tft.tukey_h_params(x)[0]),
        "quantiles": everywhere(tft.quantiles(x, 4, 0.01, weights=weights)),
        "covariance": everywhere(tft.covariance(pair, tf.float32)),
        "pca": everywhere(tft.pca(pair, 1, tf.float32)),
        "z": tft.scale_to_z_score(pair, elementwise=True),
        "sparse_z": tft.scale_to_z_score(several),
        "gauss": tft.scale_to_gaussian(x),
        "buckets": tft.bucketize(x, 5, weights=weights),
        "buckets_by_key": tft.bucketize_per_key(
            flat_x, flat, 3, weights=tf.reshape(weights, [-1])
        ),
        "z_by_key": tft.scale_to_z_score_per_key(flat_x, flat),
        "z_of_keys": tft.scale_to_z_score_per_key(
            flat_x, flat, key_vocabulary_filename="keys"
        ),
        "range_by_key": tft.scale_to_0_1_per_key(flat_x, flat),
        "range_of_keys": tft.scale_by_min_max_per_key(
            flat_x, flat, key_vocabulary_filename="ranges"
        ),
        "largest_keys": everywhere(tf.reduce_max(sizes)),
        "keys": tf.tile(tf.reshape(keys[:2], [1, -1]), [tf.shape(x)[0], 1]),
        "histogram": everywhere(tf.cast(counts, tf.float32)),
        "edges": everywhere(tf.reshape(edges, [-1])),
        "frequencies": everywhere(tf.cast(frequencies, tf.float32)),
        "names": tf.tile(tf.reshape(names[:2], [1, -1]), [tf.shape(x)[0], 1]),
    }
