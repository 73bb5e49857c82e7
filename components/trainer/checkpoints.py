"""A model's weights on their way from the process that trained to the one that exports.

Written and read by structure (`tf.train.Checkpoint`), so that it makes no difference
under which strategy either side built the model.
"""

from __future__ import annotations

import tensorflow as tf

from strategos.components.errors import UserError


def write_weights(model: tf.keras.Model, path: str) -> None:
    """Writes the model's variables to files that begin with `path`."""
    tf.train.Checkpoint(model=model).write(path)


def read_weights(model: tf.keras.Model, path: str) -> None:
    """Reads into a built model what `write_weights` wrote.

    Raises:
      UserError: The model differs from the one that was written.
    """
    try:
        status = tf.train.Checkpoint(model=model).read(path)
        status.assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:
        raise UserError(
            "`build_model` built another model the second time than the first: the "
            "trained weights do not fit it. It must depend on nothing but its context. "
            f"({str(error).splitlines()[0]})"
        ) from error
