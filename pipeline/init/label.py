"""The label: its task, its classes, and how it becomes a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import BadInputError
from strategos.components.wording import choices, counted, did_you_mean
from strategos.pipeline.init.columns import Column

MOST_CLASSES = 200
_FEW_CLASSES = 20  # whole numbers with more distinct values are quantities
_SHARE_OF_CLASSES = 0.2  # of the rows, at most: else nearly each row has its own class


@dataclasses.dataclass(frozen=True)
class Label:
    """The label of a workload.

    Attributes:
      column: The column.
      task: As in `evaluator.task`.
      classes: The classes as text, in the order of their numbers; of a binary label
        (other, predicted); empty for a regression.
      positives: Spellings of the class that a binary model predicts; empty if the
        column has 0 and 1.
      reason: Why the task was chosen.
    """

    column: Column
    task: str
    reason: str
    classes: tuple[str, ...] = ()
    positives: tuple[str, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether the label is read as text: its classes are names, not 0 and 1."""
        return self.task == "multi_class" or bool(self.positives)

    @property
    def classes_of_rows(self) -> pa.Array:
        """The class of each row, null if missing; spellings of a class are one."""
        values = self.column.values
        if not self.positives:
            return values
        return pc.is_in(values, value_set=pa.array(self.positives), skip_nulls=False)

    @property
    def most_frequent(self) -> float:
        """The share of the most frequent class, or of the most frequent number."""
        share = max(self.column.counts.values()) / len(self.column.present)
        if self.task != "binary":
            return share
        return max(self.share_of_positives, 1 - self.share_of_positives)

    @property
    def share_of_positives(self) -> float:
        """The share of the class that a binary model predicts."""
        counts = {str(value): count for value, count in self.column.counts.items()}
        wanted = self.positives or ("1", "1.0")
        rows = sum(counts.get(each, 0) for each in wanted)
        return rows / len(self.column.present)


def find(columns: Sequence[Column], name: str) -> Label:
    """The label of this name.

    Args:
      columns: All columns.
      name: The column's name.

    Raises:
      BadInputError: No such column, or one that cannot be predicted.
    """
    by_name = {column.name: column for column in columns}
    if name not in by_name:
        raise BadInputError(
            f"the data have no column `{name}`",
            key="--label",
            expected=choices(by_name),
            remedy=did_you_mean(name, by_name),
        )
    column = by_name[name]
    _check(column)
    if column.is_truth:
        wanted = tuple(column.true_spellings)
        others = [str(value) for value in column.counts if str(value) not in wanted]
        reason = f"spellings of yes and no; {wanted[0]!r} is predicted"
        return Label(column, "binary", reason, (others[0], wanted[0]), wanted)
    if column.distinct == 2:
        return _binary(column)
    if column.is_text:
        return _classes(column, f"text with {column.distinct} distinct values")
    whole = column.kind == Kind.INT
    if whole and column.distinct <= _FEW_CLASSES:
        return _classes(column, f"{column.distinct} distinct whole numbers")
    reason = f"numbers, {column.distinct:,} of them distinct"
    return Label(column, "regression", reason)


def _check(column: Column) -> None:
    """Rejects a column that no model can predict."""
    if not len(column.present):
        raise _rejected(column, "values", "has none in any row")
    if column.is_list or not (column.is_text or column.is_number):
        raise _rejected(column, "a number or a text in each row", "has lists or bytes")
    if column.distinct == 1:
        (value,) = column.counts
        expected = "two distinct values or more"
        raise _rejected(column, expected, f"is {value!r} in every row")
    if column.is_text and column.is_unique:
        expected = "values that rows share"
        raise _rejected(column, expected, "has another text in each row")
    if column.not_finite:
        what = f"has {counted(column.not_finite, 'NaN or infinite number')}"
        remedy = "Correct or remove these rows."
        raise _rejected(column, "finite numbers", what, remedy)
    if column.numbers_rows:
        expected = "values to predict"
        raise _rejected(column, expected, "numbers the rows")


def _binary(column: Column) -> Label:
    """Two values: 0 and 1, or the rarer one is predicted."""
    if set(column.counts) == {0, 1} and not column.is_text:
        return Label(column, "binary", "0 and 1", ("0", "1"))
    more, fewer = map(str, column.counts)
    reason = f"two distinct values; {fewer!r}, the rarer one, is predicted"
    return Label(column, "binary", reason, (more, fewer), (fewer,))


def _classes(column: Column, reason: str) -> Label:
    count = column.distinct
    if count > min(MOST_CLASSES, _SHARE_OF_CLASSES * len(column.present)):
        raise _rejected(
            column,
            f"at most {MOST_CLASSES} classes, each in several rows",
            f"has {count:,} distinct texts in {len(column.present):,} rows",
            "If these are numbers, write them as 1234.5; else group them.",
        )
    classes = tuple(sorted(map(str, column.counts)))
    return Label(column, "multi_class", reason, classes)


def _rejected(
    column: Column, expected: str, what: str, remedy: str = "Name another column."
) -> BadInputError:
    return BadInputError(
        f"`{column.name}` {what}", key="--label", expected=expected, remedy=remedy
    )
