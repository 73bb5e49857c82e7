"""Checks that a file has columns with names, and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from strategos.components.errors import UserError

MAX_COLUMNS = 50_000
"""Columns of a file at most: TensorFlow's graph has some operations for each."""


def no_row(path: str) -> UserError:
    """The error of a file that has columns, but no row."""
    return UserError(f"{path}: has no row. Remove the file, or put the data there.")


def check_names(path: str, names: Sequence[str]) -> None:
    """Rejects columns without a name, and names that occur twice.

    Args:
      path: The file, for the message.
      names: Column names, in the order of the file.

    Raises:
      UserError: Names the file and the column; or there are more than `MAX_COLUMNS`.
    """
    if len(names) > MAX_COLUMNS:
        raise UserError(
            f"{path}: has {len(names):,} columns; at most {MAX_COLUMNS:,} are read. "
            "Put values of one kind into a list column of a Parquet file."
        )
    counts = Counter(names)
    for position, name in enumerate(names, 1):
        if not name.strip():
            raise UserError(
                f"{path}: column {position} has no name. Name it, or take it out "
                f"(pandas writes it without `index=False`)."
            )
        if counts[name] > 1:
            raise UserError(
                f"{path}: column `{name}` occurs {counts[name]} times. Rename all "
                f"but one."
            )
