import tensorflow as tf


def build_model(context):
    inputs = context.inputs()
    size = context.vocabulary_size("words") + 1
    vectors = tf.keras.layers.Embedding(size, 4)(inputs["ids"] + 1)
    total = tf.keras.layers.Lambda(lambda x: tf.reduce_sum(x, 1))(vectors)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(total))
    model.compile(tf.keras.optimizers.Adam(0.1), "binary_crossentropy", ["AUC"])
    return model
