"""The layer of `context.embedding`: an embedding that records its feature."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.transformed.feature_ids import FeatureIds
from strategos.components.wording import listed, quoted


def layer(
    keras: Any,
    feature: str,
    known: dict[str, FeatureIds],
    units: int,
    **arguments: Any,
) -> tf.keras.layers.Layer:
    """Makes an embedding with one row for each id of a feature.

    Args:
      keras: The Keras package of the layer.
      feature: Name of the feature.
      known: The meaning of the values of each feature.
      units: Size of a vector.
      **arguments: Further arguments of Keras's `Embedding`.

    Raises:
      UserError: The feature does not have the ids of one vocabulary.
    """
    ids = known.get(feature)
    if ids is None or ids.entries is None or ids.is_one_hot:
        fitting = sorted(
            name
            for name, each in known.items()
            if each.entries is not None and not each.is_one_hot
        )
        raise UserError(
            f"`context.embedding`: `{feature}` does not have the ids of one vocabulary",
            expected=listed(quoted(fitting))
            or "a feature made by "
            "`tft.compute_and_apply_vocabulary`, which this data does not have",
        )
    every = np.concatenate([ids.ids, ids.others])
    offset = -int(every.min())
    rows = int(every.max()) + offset + 1
    return _class(keras)(feature, offset, rows, units, **arguments)


@functools.cache
def _class(keras: Any) -> type:
    class FeatureEmbedding(keras.layers.Embedding):
        """An embedding with row 0 for a feature's least id."""

        def __init__(self, feature: str, offset: int, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            self.strategos_feature = feature
            self.strategos_offset = offset

        def call(self, inputs: Any) -> Any:
            """Looks up ids, dense or ragged."""
            offset = tf.cast(self.strategos_offset, inputs.dtype)
            return super().call(inputs + offset)

    return FeatureEmbedding
