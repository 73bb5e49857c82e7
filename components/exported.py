"""Names of the folders, files and signatures in a model that the Trainer exports.

<model>/trainer.json                 facts of the training
<model>/Format-Weights/              weights for `trainer.warm_start`
<model>/Format-Serving/              the SavedModel, pushed as a version
  saved_model.pb
  assets.extra/schema.pbtxt          schema of the raw data
  assets.extra/serving.json          columns that the model needs, label, classes,
                                     spellings of a missing number
  assets.extra/manifest.json         run, spans, metrics, …; added by the Pusher
  assets.extra/weights/              Format-Weights, if a compiled pipeline pushed it
"""

from __future__ import annotations

from collections.abc import Sequence

SERVING_DIR = "Format-Serving"  # as in TFX's path_utils
WEIGHTS_DIR = "Format-Weights"
FACTS = "trainer.json"
SAVED_MODEL = "saved_model.pb"
SCHEMA = "assets.extra/schema.pbtxt"
DESCRIPTION = "assets.extra/serving.json"
MANIFEST = "assets.extra/manifest.json"
PUSHED_WEIGHTS = "assets.extra/weights"

SERVE = "serving_default"
"""Signature: serialized raw examples, string[batch], to the model's outputs."""

OUTPUT = "predictions"
"""The output of `SERVE` that is evaluated, if it has several."""

ERROR = "reconstruction_error"
"""The output of `SERVE` that says how well a row is reconstructed, float32[batch, 1].

The mean squared difference between `OUTPUT` and the features of the row.
"""

TRANSFORM = "transform_features"
"""Signature: serialized raw examples, string[batch], to the transformed features."""

PREDICT = "predict"
"""Signature: raw features as tensors, to the model's outputs."""


def value_names(classes: Sequence[str], width: int) -> tuple[str, ...]:
    """The names of an output's values of a row; () if they have none of their own.

    Values beyond the classes are out-of-vocabulary buckets, named by their index. If a
    class has the name of such an index, the values have no names.

    Args:
      classes: Names of the classes; () if unknown.
      width: Number of values of a row.
    """
    names = (*classes, *map(str, range(len(classes), width)))
    return names if classes and len(names) == len(set(names)) == width else ()
