"""Names in what the Trainer exports: folders, files and signatures.

<model>/trainer.json                 the facts of the training
<model>/Format-Weights/              what another training starts from
<model>/Format-Serving/              the SavedModel, pushed as a version
  saved_model.pb
  assets.extra/schema.pbtxt          the schema of the raw data
  assets.extra/serving.json          which columns the model needs, and its label
"""

from __future__ import annotations

SERVING_DIR = "Format-Serving"  # as in TFX's path_utils
WEIGHTS_DIR = "Format-Weights"
FACTS = "trainer.json"
SAVED_MODEL = "saved_model.pb"
SCHEMA = "assets.extra/schema.pbtxt"
DESCRIPTION = "assets.extra/serving.json"

SERVE = "serving_default"
"""Signature: serialized raw examples, string[batch], to the model's answers."""

TRANSFORM = "transform_features"
"""Signature: serialized raw examples, string[batch], to the transformed features."""

PREDICT = "predict"
"""Signature: raw features as tensors, to the model's answers."""
