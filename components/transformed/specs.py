"""Specs of transformed features: which of them are numbers of fixed size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

Spec = Mapping[str, Any]


def is_fixed(spec: Spec) -> bool:
    """Whether all features are numbers of fixed size."""
    return len(spec) == sum(map(len, widths(spec).values()))


def widths(spec: Spec) -> dict[str, dict[str, int]]:
    """Number of values of each feature that is numbers of fixed size.

    Args:
      spec: `tf.io` spec of each feature.

    Returns:
      By type, then by name in the order of the matrix.
    """
    by_dtype: dict[str, dict[str, int]] = {}
    for name, kind in sorted(spec.items()):
        if not isinstance(kind, tf.io.FixedLenFeature) or kind.dtype == tf.string:
            continue
        if width := math.prod(kind.shape):
            by_dtype.setdefault(kind.dtype.name, {})[name] = width
    return by_dtype
