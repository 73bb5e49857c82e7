"""Judges the exported model on the eval split: metrics, slices, bounds, blessing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SETTINGS = "settings"
"""The execution property of the Evaluator, in the form of `settings_text`."""

SUMS_VARIABLE = "STRATEGOS_EVALUATION_SUMS"
"""Names the environment variable with the folder of kept sums; may be missing."""


def settings_text(evaluator: Mapping[str, Any], label: str, weight: str = "") -> str:
    """The settings of an Evaluator as text.

    Args:
      evaluator: The evaluator section: task, metrics, slices, bounds.
      label: Name of the label's feature.
      weight: Name of the feature that weights the rows; "" for none.
    """
    settings = {"evaluator": evaluator, "label": label}
    if weight:
        settings["weight"] = weight
    return json.dumps(settings, sort_keys=True)
