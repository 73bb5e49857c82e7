import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    vocabulary = tft.compute_and_apply_vocabulary
    color = tft.sparse_tensor_to_dense_with_shape(inputs["color"], [None, 1], "")
    return {
        "size": inputs["size"],
        "color": vocabulary(color, vocab_filename="color"),
        "counted": vocabulary(inputs["counted"], vocab_filename="counted"),
        "reserved": vocabulary(
            inputs["reserved"], num_oov_buckets=1, vocab_filename="reserved"
        ),
        "listed": number("listed", inputs),
        "unnamed": number("unnamed", inputs),
    }


def number(label, inputs):
    kinds = [f"{kind} {label}" for kind in ("dog", "élan", "cat")]
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(kinds, tf.range(3, dtype=tf.int64)), -1
    )
    return table.lookup(inputs[label])
