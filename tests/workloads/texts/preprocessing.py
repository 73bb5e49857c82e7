import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs, custom_config):
    words = tf.strings.split(
        tf.squeeze(inputs["review"], 1), custom_config["separator"]
    )
    ids = tft.compute_and_apply_vocabulary(words, vocab_filename="words")
    return {"ids": ids, "good": inputs["good"]}


def stats_options_updater_fn(stats_type, stats_options):
    return stats_options
