import tensorflow as tf
import tensorflow_transform as tft


def _column(inputs, value):
    """A value of the whole data set as a column."""
    return tf.zeros_like(inputs["x"]) + tf.cast(value, tf.float32)


def _first_letter(token):
    return token[:1]


def preprocessing_fn(inputs):
    key, text, tokens, n = (inputs[name] for name in ("key", "text", "tokens", "n"))
    words = tf.strings.split(tf.reshape(text, [-1]), " ").to_sparse()
    flat, label = tf.reshape(key, [-1]), tf.reshape(tf.cast(n > 1, tf.int64), [-1])
    weights = tf.reshape(inputs["w"], [-1])

    def ids(x, name, **kwargs):
        return tft.compute_and_apply_vocabulary(x, vocab_filename=name, **kwargs)

    def written(x, name, kind=tft.vocabulary, **kwargs):
        kind(x, vocab_filename=name, **kwargs)

    size = tft.experimental.get_vocabulary_size_by_name
    outputs = {
        "words": ids(words, "words", num_oov_buckets=2),
        "often": ids(words, "often", frequency_threshold=9, default_value=-7),
        "top": ids(tokens, "top", top_k=2),
        "top_often": ids(words, "top_often", top_k=3, frequency_threshold=12),
        "numbers": ids(n, "numbers"),
        "top_numbers": ids(n, "top_numbers", top_k=3),
        "shuffled": ids(words, "shuffled", fingerprint_shuffle=True),
        "zipped": ids(words, "zipped", file_format="tfrecord_gzip"),
        "weighted": ids(key, "weighted", weights=inputs["w"]),
        "reserved": ids(words, "reserved", reserved_tokens=["b", "new"]),
        "size": _column(inputs, size("words")),
    }
    written(words, "counted", store_frequency=True)
    written(key, "sums", store_frequency=True, weights=inputs["w"])
    written(n, "top_counted", store_frequency=True, top_k=2)
    written(flat, "informed", labels=label, store_frequency=True, min_diff_from_avg=0.0)
    written(
        flat,
        "informed_by_weight",
        labels=label,
        weights=weights,
        use_adjusted_mutual_info=True,
        top_k=3,
    )
    written(
        words,
        "covered",
        key_fn=_first_letter,
        top_k=1,
        coverage_top_k=1,
        coverage_frequency_threshold=2,
    )
    approximate = tft.experimental.approximate_vocabulary
    written(words, "nearly", approximate, top_k=3, store_frequency=True)
    written(n, "nearly_numbers", approximate, top_k=4, reserved_tokens=["77"])
    written(key, "nearly_weighted", approximate, top_k=9, weights=inputs["w"])
    return outputs
