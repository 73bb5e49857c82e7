"""AutoGraph for the user's code only.

Keras is written for graph mode and needs no AutoGraph, so TensorFlow's table of
packages to leave alone lists `keras`; it lacks tf-keras's name, `tf_keras`. Without the
entry `fit` first converts a hundred functions of tf-keras (10 s). Turning AutoGraph off
around `train_step` would be no substitute: it reaches the user's layers, whose `if` on
a tensor then fails.
"""

from __future__ import annotations


def leave_tf_keras_alone() -> None:
    """Enters `tf_keras` into AutoGraph's table of packages not to convert."""
    from tensorflow.python.autograph.core import config

    rule = config.DoNotConvert("tf_keras")
    if all(str(rule) != str(known) for known in config.CONVERSION_RULES):
        config.CONVERSION_RULES = (rule, *config.CONVERSION_RULES)
