"""The values of a file's columns: numbers and texts as features hold them."""

from __future__ import annotations

DEFAULT_NULL_VALUES = (
    *("NA", "N/A", "n/a", "<NA>", "#N/A", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan"),
)
"""Spellings of a missing number in pandas and Arrow, without the rarest ones."""
