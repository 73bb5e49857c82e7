"""The interface of a data file format.

Usage, in a package with the entry point `feather = "package.module:FeatherSource"` in
the group `strategos.sources`, for `data.examples: data/*.feather`:

    class FeatherSource(Source):
        def __init__(self, path: str):
            self.path = path
            self.declare(feather.read_table(path).schema)

        def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
            yield from feather.read_table(self.path).to_batches()
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from strategos.components.data_files.sources.names import check_names
from strategos.components.data_files.sources.reading import Reading
from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.data_files.inference import Profile


class Part(NamedTuple):
    """Consecutive rows of a file, in units of its format.

    Attributes:
      start: Start of the part: a byte of a CSV file, a row group of a Parquet file.
      stop: Start of the next part; None at the end of the file.
    """

    start: int = 0
    stop: int | None = None


WHOLE = Part()

MAX_ROWS = 32768
"""Rows of a batch at most."""


class BadRow(NamedTuple):
    """A row that cannot be read.

    Attributes:
      place: The place in the file, such as `line 7`.
      reason: The error.
      text: The row as the file has it.
    """

    place: str
    reason: str
    text: str

    def problem(self, path: str) -> str:
        """The error message.

        Args:
          path: The file.
        """
        return f"{path}: {self.place}: {self.reason}"


class Source(abc.ABC):
    """One file of rows. The constructor reads the column names, but no row.

    Objects go to workers of an engine: they are pickled, and hold no open file.

    Attributes:
      cut_by_scan: Whether `cut` needs a scan of every part to find where rows begin.
      open_ended: Whether rows may lack columns, see `OpenSource`.
      knows_rows: Whether `rows_of` takes the number from the file's metadata.
      path: Path of the file.
      names: Column names, in the order of the file.
      types: Arrow types of the columns, if the file declares them, by name.
      lists: Names of the columns that may have several values in a row.
      suspects: Names of the columns with a number that float32 may not represent;
        None if unknown.
      is_empty: Whether the header says that the file has no rows.
      malformed: Each row that cannot be read, by its index in the part that is read.
        None (default): such a row is an error. A dict: `batches` may leave out the row
        and add it here.
      ignores_extra: Whether a run leaves out columns that no schema declares, or that
        not all files have.
      tolerant: Whether a run sets rows aside that cannot be read.
    """

    cut_by_scan: ClassVar[bool] = False
    open_ended: ClassVar[bool] = False
    knows_rows: ClassVar[bool] = False

    path: str
    names: tuple[str, ...]
    types: Mapping[str, pa.DataType] = MappingProxyType({})
    lists: frozenset[str] = frozenset()
    suspects: frozenset[str] | None = None
    is_empty: bool = False
    malformed: dict[int, BadRow] | None = None
    tolerant: bool = False
    ignores_extra: bool = False

    @abc.abstractmethod
    def __init__(self, path: str):
        """Reads the header.

        Args:
          path: A file that `check` accepts.

        Raises:
          UserError: The file is malformed or has no columns.
        """

    def declare(self, schema: pa.Schema) -> None:
        """Takes names and types of the columns from the file's own schema.

        Args:
          schema: The Arrow types of the columns.

        Raises:
          UserError: A column has no name or the name of another one, or its type
            cannot become a feature.
        """
        from strategos.components.data_files.values.arrow_types import is_list

        check_names(self.path, schema.names)
        self.names = tuple(schema.names)
        self.types = {each.name: self._type_of(each.name, each.type) for each in schema}
        self.lists = frozenset(name for name in self.names if is_list(self.types[name]))

    @classmethod
    def check(cls, path: str) -> None:
        """Rejects a file if its first bytes contradict the suffix of its name.

        Raises:
          UserError: The file cannot be opened or has another format; the message names
            the format found and the remedy.
        """
        del path  # by default, the constructor finds that

    @classmethod
    def check_as(cls, path: str, reading: Reading) -> None:
        """Checks a file as `check` does; by default, a format has no settings.

        Args:
          path: The file.
          reading: How the files are read.

        Raises:
          UserError: See `check`.
        """
        del reading
        cls.check(path)

    @classmethod
    def open(cls, path: str, reading: Reading) -> Source:
        """Checks a file and opens it; by default, a format has no settings.

        Args:
          path: The file.
          reading: How the files are read.

        Raises:
          UserError: See `check` and the constructor.
        """
        cls.check_as(path, reading)
        return cls(path)

    def parts(self, size: int) -> list[Part]:
        """Divides the file into parts; by default, into one.

        Args:
          size: Approximate size of a part in bytes.

        Returns:
          The parts in order. If `cut_by_scan`, `cut` must move their bounds to rows.
        """
        return [WHOLE]

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

    def inspect(self, part: Part, profiles: Mapping[str, Profile]) -> int:
        """Adds all values of each column, or its declared type, to its profile.

        By default reads `types`, and no values.

        Args:
          part: The part to read.
          profiles: Profile by column name, updated in place.

        Returns:
          Number of rows in the part.

        Raises:
          UserError: The file is malformed.
        """
        rows = self.rows_of(part)
        for name, data_type in self.types.items():
            suspected = self.suspects is None or name in self.suspects
            profiles[name].see_type(data_type, self, part, rows, suspected)
        return rows

    def unseen(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields columns that `inspect` has not read, only their declared types.

        Args:
          part: The part to read.
          names: The columns.

        Raises:
          UserError: The file is malformed.
        """
        return self.select(part, names)

    def select(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields some columns of the rows of a part.

        Args:
          part: The part to read.
          names: The columns.

        Raises:
          UserError: The file is malformed.
        """
        return (chosen(batch, names) for batch in self.batches(part))

    @abc.abstractmethod
    def batches(self, part: Part = WHOLE) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part in order, with the file's columns and types.

        Args:
          part: The part to read.

        Raises:
          UserError: The file is malformed or has no rows.
        """

    def count_rows(self, enough: int) -> int:
        """Counts the rows, perhaps without parsing them: the count may be too high.

        Args:
          enough: Counting may stop at this number of rows.

        Raises:
          UserError: The file is malformed.
        """
        return self.rows_of(WHOLE)

    def rows_of(self, part: Part) -> int:
        """Number of rows of a part; reads the part unless the file knows the number.

        Raises:
          UserError: The file is malformed.
        """
        return sum(batch.num_rows for batch in self.batches(part))

    def copy_first(self, rows: int, path: str) -> None:
        """Writes the first rows, as they are, to a file of the same format.

        Args:
          rows: Number of rows; all, if the file has fewer.
          path: The new file, with the suffix of this one.

        Raises:
          UserError: The format cannot be written, or the file cannot be read.
        """
        raise UserError(
            f"{self.path}: the first rows cannot be copied to a smaller file: the "
            "format's reader has no `copy_first`",
            remedy="Add the method, or run on all rows.",
        )

    def where(self, part: Part, row: int) -> str:
        """The place of a row in the file, for an error message.

        By default its number from 1, which fits a file of one part.

        Args:
          part: Part of the file that contains the row.
          row: Index of the row in the part, from 0.
        """
        return f"row {row + 1}"

    def every_name(self) -> tuple[str, ...]:
        """The names of all columns; reads all rows if the file declares none.

        Raises:
          UserError: The file is malformed.
        """
        return self.names

    def fresh(self) -> Source:
        """This source for one read: if tolerant, a copy with its own `malformed`."""
        if not self.tolerant:
            return self
        mine = copy.copy(self)
        mine.malformed = {}
        return mine

    def place_of(self, part: Part, row: int) -> str:
        """The place of a row that `batches` has yielded, for an error message.

        Args:
          part: Part of the file that contains the row.
          row: Index of the row among those that were yielded.
        """
        return self.where(part, self.index_of(row))

    def place(self, part: Part, row: int) -> str:
        """The file and the place of a row that `batches` has yielded, for messages.

        Args:
          part: Part of the file that contains the row.
          row: Index of the row among those that were yielded.
        """
        return f"{self.path}: {self.place_of(part, row)}"

    def places(self, part: Part, rows: Sequence[int]) -> list[str]:
        """The files and places of rows, see `place`.

        Args:
          part: Part of the file that contains the rows.
          rows: Indices of the rows among those that were yielded, ascending.
        """
        return [self.place(part, row) for row in rows]

    def stretches(self, row: int, rows: int) -> Iterator[tuple[str, int, int]]:
        """Divides consecutive rows of this source by the files that they are in.

        Args:
          row: Index of the first row.
          rows: Number of rows.

        Yields:
          Path of a file, index in it of the first row, number of its rows.
        """
        yield self.path, row, rows

    @property
    def alike(self) -> Hashable:
        """The common key of small files that `parsed` takes together; or None."""
        return None

    def parsed(self, contents: Sequence[bytes]) -> tuple[pa.Table, list[int]] | None:
        """Parses files that are `alike`, given their contents, all at once.

        Returns:
          All rows, and the number of rows of each file; None if they are to be read one
          by one, e.g. because one is malformed.
        """
        return None

    def index_of(self, row: int) -> int:
        """The index in its part of a row that `batches` has yielded.

        Args:
          row: Index of the row among those that were yielded.
        """
        for each in sorted(self.malformed or ()):
            row += each <= row
        return row

    def _type_of(self, name: str, data_type: pa.DataType) -> pa.DataType:
        from strategos.components.data_files.values import features

        try:
            features.kind_of(data_type)
            return data_type
        except TypeError as error:
            raise UserError(
                f"{self.path}: column `{name}` has the type {data_type}, which "
                f"a tf.Example cannot hold. Expected numbers, text, bytes, times or "
                f"lists of these; flatten the column or take it out."
            ) from error


def chosen(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a batch; pyarrow 10 has no `RecordBatch.select`."""
    columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return type(batch).from_arrays(columns, list(names))
