"""Values that are NaN or infinite are found in any kind of tensor, and named."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from strategos.components.trainer.data.tensor_values import not_finite

FINE = {"a": tf.ones([3, 2]), "text": tf.constant([["x"], ["y"], ["z"]])}


def test_features_of_any_kind_and_the_label_are_named_with_their_rows():
    sparse = tf.sparse.from_dense([[0.0, 1.0], [0.0, 0.0], [np.inf, 2.0]])
    ragged = tf.ragged.constant([[1.0], [], [2.0, np.nan, np.nan]])
    bad = {**FINE, "s": sparse, "r": ragged}
    label = tf.constant([[np.nan], [1.0], [-np.inf]])
    batches = [(FINE, tf.ones([3, 1])), (bad, label)]
    assert not_finite(batches, range(7, 9), "tips") == (
        "In the rows of step 8, `r` has 2 values that are NaN or infinite (row 3 of "
        "the batch), `s` has 1 value that is NaN or infinite (row 3 of the batch) and "
        "`tips` has 2 values that are NaN or infinite (rows 1 and 3 of the batch)."
    )
    weighted = [(FINE, tf.ones([3, 1]), tf.constant([1.0, np.inf, 1.0]))]
    assert "`weight` has 1 value" in not_finite(weighted, range(1, 2), "tips")
    assert not_finite(batches, range(7, 8), "tips") == (
        "All features and labels of step 7 are finite."
    )
