import tensorflow as tf
import tensorflow_transform as tft


def table():
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([7, 8], tf.int64)),
        default_value=-5,
    )


def preprocessing_fn(inputs):
    key, text, tokens, n = (inputs[name] for name in ("key", "text", "tokens", "n"))
    vocabulary = tft.compute_and_apply_vocabulary
    words = tf.strings.split(text).to_sparse()
    ids = vocabulary(words, vocab_filename="words")
    size = tft.experimental.get_vocabulary_size_by_name("words")
    indices, weights = tft.tfidf(ids, size)
    lookup = tft.make_and_track_object(table, name="lookup")
    return {
        "row": inputs["row"],
        "frequent": vocabulary(
            words, top_k=3, frequency_threshold=4, num_oov_buckets=2
        ),
        "of_ints": vocabulary(n, top_k=4, default_value=99),
        "weighted": vocabulary(key, weights=inputs["x"], vocab_filename="key"),
        "labelled": vocabulary(
            key, labels=tf.cast(n > 3, tf.int64), min_diff_from_avg=0.0
        ),
        "maybe_key": vocabulary(inputs["maybe_key"]),
        "filled": vocabulary(
            tft.sparse_tensor_to_dense_with_shape(inputs["maybe_key"], [None, 1], ""),
            fingerprint_shuffle=True,
        ),
        "tfidf_indices": indices,
        "tfidf_weights": weights,
        "ngrams": tft.ngrams(words, (1, 2), " "),
        "bag": tft.bag_of_words(words, (1, 2), " "),
        "hashed": tft.hash_strings(key, 10),
        "hashed_strongly": tft.hash_strings(words, 10, key=[1, 2]),
        "dense": tft.sparse_tensor_to_dense_with_shape(
            inputs["maybe"], [None, 1], default_value=-1.0
        ),
        "deduplicated": tft.deduplicate_tensor_per_row(tokens),
        "looked_up": lookup.lookup(key),
        "word_count": tft.word_count(words),
    }
