"""The interface of a data file format."""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.data_files.inference import Profile


MAX_COLUMNS = 50_000
"""Columns of a file at most: TensorFlow's graph has some operations for each."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Consecutive rows of a file, in units of its format.

    Attributes:
      start: Where the part starts: a byte of a CSV file, a row group of a Parquet file.
      stop: Where the next part starts; None at the end of the file.
    """

    start: int = 0
    stop: int | None = None


WHOLE = Part()

MAX_ROWS = 32768
"""Rows of a batch at most."""


class Source(abc.ABC):
    """One file of rows. The constructor reads the column names, but no row.

    Attributes:
      suffixes: Suffixes of the file names, such as `.csv`.
      cut_by_scan: Whether `cut` needs a scan of every part to find where rows begin.
      path: Path of the file.
      names: Column names, in the order of the file.
      lists: Names of the columns that may have several values in a row.
      is_empty: Whether the header says that the file has no rows.
    """

    suffixes: ClassVar[tuple[str, ...]]
    cut_by_scan: ClassVar[bool] = False

    path: str
    names: tuple[str, ...]
    lists: frozenset[str] = frozenset()
    is_empty: bool = False

    @abc.abstractmethod
    def __init__(self, path: str):
        """Reads the header.

        Args:
          path: A file that `check` accepts.

        Raises:
          UserError: The file is malformed or has no columns.
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
    def parts(self, size: int) -> list[Part]:
        """Divides the file into parts.

        Args:
          size: Approximate size of a part in bytes.

        Returns:
          The parts in order. If `cut_by_scan`, `cut` must move their bounds to rows.
        """

    def scan(self, part: Part) -> Any:
        """Scans a part for `cut`; None if `parts` are at rows already."""
        return None

    def cut(self, parts: Sequence[Part], scans: Sequence[Any]) -> list[Part]:
        """Moves the bounds of parts to where rows begin.

        Args:
          parts: All parts of the file, in order.
          scans: Result of `scan` for each part.
        """
        return list(parts)

    @abc.abstractmethod
    def inspect(self, part: Part, profiles: Mapping[str, Profile]) -> int:
        """Adds all values of each column, or their declared type, to its profile.

        Args:
          part: The part to read.
          profiles: Profile by column name, updated in place.

        Returns:
          Number of rows in the part.

        Raises:
          UserError: The file is malformed.
        """

    def unseen(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns of which `inspect` read only the declared type.

        Args:
          part: The part to read.
          names: The columns.

        Raises:
          UserError: The file is malformed.
        """
        return iter(())

    @abc.abstractmethod
    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part in order, with the file's columns and types.

        Args:
          part: The part to read.

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

    def rows_of(self, part: Part) -> int:
        """Number of rows of a part; reads the part unless the file knows the number.

        Raises:
          UserError: The file is malformed.
        """
        return sum(batch.num_rows for batch in self.batches(part))

    @abc.abstractmethod
    def where(self, part: Part, row: int) -> str:
        """The place of a row in the file, for an error message.

        Args:
          part: Part of the file that contains the row.
          row: Index of the row in the part, from 0.
        """


def no_row(path: str) -> UserError:
    """The error of a file that has columns, but no row."""
    return UserError(f"{path}: has no row. Remove the file, or put the data there.")


def check_names(path: str, names: Sequence[str]) -> None:
    """Rejects columns without a name, and names that occur twice.

    Args:
      path: The file, for the message.
      names: Column names, in the order of the file.
      lists: Names of the columns that may have several values in a row.

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
