"""Compares the number of rows read of a split with the number written to it.

Checksums detect a damaged file, but not a file that is missing or exists twice: the
number of rows in ML Metadata does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strategos.components.errors import UserError

REMEDY = "Run again with --no-cache: all artifacts are made anew."


def record(examples: Any, split: str, rows: int) -> None:
    """Records the number of rows of a split.

    Args:
      examples: The Examples artifact.
      split: Name of the split.
      rows: The number.
    """
    examples.set_int_custom_property(f"rows_{split}", rows)


def recorded(examples: Sequence[Any], split: str) -> int:
    """The recorded number of rows of a split; 0 if it is unknown.

    Args:
      examples: Examples artifacts; their rows are added up.
      split: Name of the split.
    """
    rows = [each.get_int_custom_property(f"rows_{split}") for each in examples]
    return sum(rows) if all(rows) else 0


def check(folder: str, rows: int, expected: int) -> None:
    """Rejects a split that lost rows, or got more, since it was written.

    Args:
      folder: Folder of the split, for the message.
      rows: Number of rows that were read.
      expected: Number of rows by `recorded`; 0 compares nothing.

    Raises:
      UserError: The numbers differ.
    """
    if expected and rows != expected:
        raise UserError(
            f"{folder} is damaged: read {rows:,} rows, but {expected:,} were written; "
            "a file is missing, or there twice",
            remedy=REMEDY,
        )
