import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    words = tf.strings.split(inputs["text"])
    cube = tf.sparse.reshape(inputs["wide"], [-1, 5, 2])
    tft.experimental.annotate_sparse_output_shape(cube, [5, 2])
    return {
        "words": tft.compute_and_apply_vocabulary(words, vocab_filename="words"),
        "codes": tf.strings.unicode_decode(words, "UTF-8").with_values(
            tf.cast(tf.strings.unicode_decode(words.values, "UTF-8"), tf.int64)
        ),
        "nested": inputs["nested"],
        "pairs": inputs["pairs"],
        "wide": inputs["wide"],
        "cube": cube,
        "unsized": tf.sparse.reshape(inputs["wide"], [-1, 2, 5]),
        "late": inputs["late"],
    }
