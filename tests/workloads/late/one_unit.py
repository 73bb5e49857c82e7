"""As few variables as a model can have: it is traced, and agreed on, in no time."""

import tensorflow as tf


def build_model(context):
    inputs = context.inputs()
    output = tf.keras.layers.Dense(1, "sigmoid")(inputs["distance"])
    model = tf.keras.Model(inputs, output)
    model.compile("sgd", "binary_crossentropy")
    return model
