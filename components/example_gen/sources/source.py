"""What a format of data files must offer."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.example_gen.inference import Profile


class Source(abc.ABC):
    """One file of rows. Opening it reads the names of its columns, and no row.

    Attributes:
      suffixes: How the names of such files end.
      path: Path of the file.
      names: Its columns, in the order of the file.
      rows: How many rows it has, where that is known before they are read.
    """

    suffixes: ClassVar[tuple[str, ...]]

    path: str
    names: tuple[str, ...]
    rows: int | None

    @abc.abstractmethod
    def __init__(self, path: str):
        """Reads the header.

        Args:
          path: A file for which `check` has passed.

        Raises:
          UserError: The file is malformed, or has no columns.
        """

    @classmethod
    @abc.abstractmethod
    def check(cls, path: str) -> None:
        """Rejects a file whose first bytes are not what its name says.

        Raises:
          UserError: Names the file, what it is, and what to do.
        """

    @abc.abstractmethod
    def inspect(self, profiles: Mapping[str, Profile]) -> None:
        """Shows all values of each column, or their type, to its profile.

        Raises:
          UserError: The file is malformed.
        """

    @abc.abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order, in batches of columns as the file has them.

        Raises:
          UserError: The file is malformed.
        """

    @abc.abstractmethod
    def count_rows(self, enough: int) -> int:
        """Rows of the file, or more; counting stops above `enough`.

        Raises:
          UserError: The file is malformed.
        """

    def where(self, row: int) -> str:
        """The place of the row with index `row` (from 0), for a message."""
        return f"row {row + 1}"


def check_names(path: str, names: Sequence[str]) -> None:
    """Rejects columns without a name, and names that occur twice.

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
