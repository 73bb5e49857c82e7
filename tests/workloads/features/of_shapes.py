import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    key, text, wide, rag = (inputs[name] for name in ("key", "text", "wide", "rag"))
    characters = tf.strings.unicode_split(
        tf.strings.split(text), "UTF-8", errors="replace"
    )
    annotated = tf.sparse.reshape(wide, [-1, 10])
    tft.experimental.annotate_sparse_output_shape(annotated, [10])
    return {
        "row": inputs["row"],
        "text": text,
        "tokens": inputs["tokens"],
        "pair": tf.concat([key, text[:, tf.newaxis]], 1),
        "wide": wide,
        "cube": tf.sparse.reshape(wide, [-1, 5, 2]),
        "annotated": annotated,
        "rag": rag,
        "rag_ids": tft.compute_and_apply_vocabulary(rag),
        "nested": inputs["nested"],
        "pairs": inputs["pairs"],
        "characters": characters,
        "character_ids": tft.compute_and_apply_vocabulary(characters),
        "matrix": inputs["matrix"],
        "twice": tf.RaggedTensor.from_row_splits(
            tf.tile(rag.values[:, tf.newaxis], [1, 2]), rag.row_splits
        ),
    }
