import tensorflow as tf


def build_model(context):
    inputs = context.inputs()
    carriers = context.vocabulary_size("carrier") + 1
    embedding = tf.keras.layers.Embedding(carriers, 2)(inputs["carrier"])
    hour = tf.cast(inputs["hour"], tf.float32) / 24
    parts = [
        tf.keras.layers.Flatten()(embedding),
        hour,
        inputs["distance"],
        inputs["temp"] / 10,
    ]
    hidden = tf.keras.layers.Concatenate()(parts)
    for units in context.hyperparameters["units"]:
        hidden = tf.keras.layers.Dense(units, activation="relu")(hidden)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        tf.keras.optimizers.Adam(1e-2),
        tf.keras.losses.BinaryCrossentropy(),
        metrics=[tf.keras.metrics.AUC(name="auc"), "accuracy"],
    )
    return model
