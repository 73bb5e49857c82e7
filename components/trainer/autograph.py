"""AutoGraph for the user's code only.

Keras is written for graph mode and needs no AutoGraph, so TensorFlow's table of
packages to leave alone lists `keras`; it lacks tf-keras's name, `tf_keras`. Without
that entry `fit` first converts a hundred functions of tf-keras (10 s). Turning it off
around `train_step` would be no substitute: it reaches the user's layers, whose `if` on
a tensor then fails.
"""

from __future__ import annotations

_WRITTEN_FOR_GRAPHS = ("tf_keras", "tensorflow_transform", "strategos.components")


def convert_user_code_only() -> None:
    """Enters packages that need no AutoGraph into its table of those not to convert."""
    from tensorflow.python.autograph.core import config

    known = {str(rule) for rule in config.CONVERSION_RULES}
    rules = map(config.DoNotConvert, _WRITTEN_FOR_GRAPHS)
    new = tuple(rule for rule in rules if str(rule) not in known)
    config.CONVERSION_RULES = new + config.CONVERSION_RULES
