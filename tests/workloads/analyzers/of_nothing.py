"""Vocabularies that stay empty."""

import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    rare = tf.strings.regex_replace(inputs["key"], ".*", "")

    def ids(name, **kwargs):
        return tft.compute_and_apply_vocabulary(rare, vocab_filename=name, **kwargs)

    tft.vocabulary(rare, vocab_filename="counted", store_frequency=True)
    return {
        "plain": ids("plain"),
        "top": ids("top", top_k=2),
        "shuffled": ids("shuffled", fingerprint_shuffle=True),
        "numbers": tft.compute_and_apply_vocabulary(
            inputs["n"],
            vocab_filename="numbers",
            frequency_threshold=999,
            name="of_numbers",
        ),
    }
