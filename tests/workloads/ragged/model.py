import tensorflow as tf


def build_model(context):
    layers, inputs = tf.keras.layers, context.inputs()

    def total(name, units, compute):
        layer = layers.Lambda(lambda x: tf.reshape(compute(x), [-1, units]))
        return layer(inputs[name])

    def over_both(x):
        return tf.reduce_sum(tf.reduce_sum(tf.cast(x, tf.float32), 2), 1) / 1000

    embedding = layers.Embedding(context.vocabulary_size("words") + 1, 4)
    words = layers.Lambda(lambda x: tf.reduce_sum(x, 1))(embedding(inputs["words"] + 1))
    hidden = layers.Concatenate()(
        [
            words,
            total("codes", 1, over_both),
            total("nested", 1, over_both),
            total("pairs", 2, lambda x: tf.reduce_sum(x, 1)),
            total("wide", 1, lambda x: tf.sparse.reduce_sum(x, 1)),
            total("cube", 10, tf.sparse.to_dense),
            total("unsized", 1, lambda x: tf.reduce_sum(tf.sparse.to_dense(x), [1, 2])),
        ]
    )
    model = tf.keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden))
    model.compile(tf.keras.optimizers.Adam(0.05), "binary_crossentropy")
    return model
