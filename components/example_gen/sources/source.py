"""The interface of a data file format."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.example_gen.inference import Profile


MAX_ROWS = 16384
"""Rows of a batch at most."""


class Source(abc.ABC):
    """One file of rows. The constructor reads the column names, but no row.

    Attributes:
      suffixes: Suffixes of the file names, such as `.csv`.
      path: Path of the file.
      names: Column names, in the order of the file.
      rows: Number of rows; None if unknown before `batches` has read all of them.
    """

    suffixes: ClassVar[tuple[str, ...]]

    path: str
    names: tuple[str, ...]
    rows: int | None

    @abc.abstractmethod
    def __init__(self, path: str):
        """Reads the header.

        Args:
          path: A file that `check` accepts.

        Raises:
          UserError: The file is malformed or has no columns; or it has no rows, if the
            header holds their number.
        """

    @classmethod
    @abc.abstractmethod
    def check(cls, path: str) -> None:
        """Rejects a file whose first bytes contradict the suffix of its name.

        Raises:
          UserError: The file cannot be opened or has another format; the message names
            the format found and the remedy.
        """

    @abc.abstractmethod
    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """Adds all values of each column, or their declared type, to its profile.

        Args:
          profiles: Profile by column name, updated in place.

        Raises:
          UserError: The file is malformed.
        """

    @abc.abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in order, in batches with the file's columns and types.

        Raises:
          UserError: The file is malformed or has no rows.
        """

    @abc.abstractmethod
    def count_rows(self, enough: int) -> int:
        """Counts the rows without parsing them, so the count may be too high.

        Args:
          enough: Counting may stop at this number of rows.

        Raises:
          UserError: The file is malformed.
        """

    def where(self, row: int) -> str:
        """The place of a row in the file, for an error message.

        Args:
          row: Index of the row, from 0.
        """
        return f"row {row + 1}"


def check_names(path: str, names: Sequence[str]) -> None:
    """Rejects columns without a name, and names that occur twice.

    Args:
      path: The file, for the message.
      names: Column names, in the order of the file.

    Raises:
      UserError: Names the file and the column.
    """
    for position, name in enumerate(names, 1):
        if not name.strip():
            raise UserError(
                f"{path}: column {position} has no name. Name it, or take it out "
                f"(pandas writes it without `index=False`)."
            )
        if names.count(name) > 1:
            raise UserError(
                f"{path}: column `{name}` occurs {names.count(name)} times. Rename all "
                f"but one."
            )
