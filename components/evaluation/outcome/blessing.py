"""Blessings in the form of TFX's Evaluator and InfraValidator.

TFX's own names are in `tfx.components`: importing that needs TensorFlow and Beam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfx import types

BLESSED = "blessed"
"""The property of a blessing: 1 or 0."""

FILES = {True: "BLESSED", False: "NOT_BLESSED"}
"""The file in an evaluation's blessing."""

MODELS = ("current_model", "baseline_model")
"""The properties with the URIs of the models; with `_id` added, with their ids."""


def is_blessed(blessing: types.Artifact) -> bool:
    """Whether a model is blessed by the Evaluator, or by the InfraValidator.

    Args:
      blessing: Their output.
    """
    return bool(blessing.get_int_custom_property(BLESSED) == 1)
