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
