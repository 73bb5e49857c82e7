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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from strategos.components.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from strategos.components.data_files.inference import Profile
    from strategos.components.data_files.sources.reading import Reading


MAX_COLUMNS = 50_000
"""Columns of a file at most: TensorFlow's graph has some operations for each."""


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

_WIDE = 512  # columns
_HEAD_BYTES = 1 << 18


def for_columns(size: int, most: int, columns: int) -> int:
    """Bytes of rows that are worth the calls for each column.

    Args:
      size: Bytes for a table of up to 512 columns.
      most: Bytes at most.
      columns: Number of columns.
    """
    return max(size, min(size * columns // _WIDE, most))


class Source(abc.ABC):
    """One file of rows. The constructor reads the column names, but no row.

    Objects go to workers of an engine: they are pickled, and hold no open file.

    Attributes:
      cut_by_scan: Whether `cut` needs a scan of every part to find where rows begin.
      open_ended: Whether rows may lack columns, see `OpenSource`.
      path: Path of the file.
      names: Column names, in the order of the file.
      types: Arrow types of the columns, if the file declares them, by name.
      lists: Names of the columns that may have several values in a row.
      suspects: Names of the columns with a number that float32 may not represent;
        None if unknown.
      is_empty: Whether the header says that the file has no rows.
      malformed: Reason for each row that cannot be read, by index. None (default): such
        a row is an error. A dict: `batches` may leave out the row and add its reason.
    """

    cut_by_scan: ClassVar[bool] = False
    open_ended: ClassVar[bool] = False

    path: str
    names: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    lists: frozenset[str] = frozenset()
    suspects: frozenset[str] | None = None
    is_empty: bool = False
    malformed: dict[int, str] | None = None

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


class OpenSource(Source):
    """One file of rows that may lack columns: all names are known once it was read.

    `names` and `types` are those of the first rows. Of the others `inspect` learns, and
    `batches` yields rows with the columns that they have.
    """

    open_ended: ClassVar[bool] = True

    def inspect(self, part: Part, profiles: Mapping[str, Profile]) -> int:
        """See `Source`; reads all of the part, and adds profiles of other columns."""
        rows = 0
        for batch in self.batches(part):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if name:
                    self._type_of(name, column.type)
                    profiles[name].see_column(column, self, part, rows)
                    # At once, because such rows are parsed one by one.
                    profiles[name].check_unmixed(name)
            rows += batch.num_rows
        return rows

    def unseen(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`: `inspect` reads all values."""
        return iter(())

    def select(self, part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See `Source`; yields all columns: the others are read with them."""
        return self.batches(part)

    def every_name(self) -> tuple[str, ...]:
        """Reads all rows for the names of their columns.

        Raises:
          UserError: The file is malformed.
        """
        names = dict.fromkeys(self.names)
        for batch in self.batches():
            names |= dict.fromkeys(filter(None, batch.schema.names))
        return tuple(names)

    def reject(self, part: Part, row: int, reason: str, text: str) -> None:
        """Notes a malformed row, or raises its error.

        Args:
          part: The part that the row is in.
          row: Index of the row in the part.
          reason: What is wrong, without a subject.
          text: The row as the file has it.

        Raises:
          UserError: Malformed rows are errors, see `malformed`.
        """
        place = f"{self.path}: {self.where(part, row)}"
        problem = f"{place}: {reason}. Received: {text[:100]}"
        if self.malformed is None:
            raise UserError(problem)
        self.malformed[row] = problem

    def _see_head(self) -> None:
        """Takes `names`, `types` and `lists` from the first rows."""

        from strategos.components.data_files.values.arrow_types import is_list

        self.malformed = {}
        batch = next(self.batches(Part(0, _HEAD_BYTES)), None)
        if batch is None:
            problems = iter(self.malformed.values())
            raise UserError(next(problems, None) or no_row(self.path).headline)
        self.malformed = None
        columns = zip(batch.schema.names, batch.columns, strict=True)
        named = {name: column for name, column in columns if name}
        if not named:
            raise UserError(f"{self.path}: has no column in its first rows")
        check_names(self.path, list(named))
        self.names = tuple(named)
        types = {name: self._type_of(name, each.type) for name, each in named.items()}
        self.types: Mapping[str, pa.DataType] = types
        self.lists = frozenset(name for name, type_ in types.items() if is_list(type_))

    def _in_slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for start in range(0, batch.num_rows, MAX_ROWS):
            yield batch.slice(start, MAX_ROWS)


def chosen(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Some columns of a batch; pyarrow 10 has no `RecordBatch.select`."""
    columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
    return type(batch).from_arrays(columns, list(names))


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
