"""The errors of values that their columns cannot hold, with file and line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from strategos.components.data_files.values import features
from strategos.components.data_files.values.kinds import Kind
from strategos.components.errors import Place, UserError


@contextlib.contextmanager
def explained(place: Callable[[int], str], row: int, expected: str) -> Iterator[None]:
    """Explains a bad value with its place.

    Args:
      place: Returns file and line of the row with an index.
      row: Index of the first of the rows that are converted.
      expected: The values that are allowed.

    Raises:
      UserError: The block raised a BadValueError.
    """
    try:
        yield
    except features.BadValueError as error:
        raise UserError(
            error.reason,
            place=Place(f"{place(row + error.row)}: column `{error.column}`"),
            received=repr(str(error.value)[:100]),
            expected=expected,
            remedy="Correct the value.",
        ) from error


def bad_value(
    place: Callable[[int], str], row: int, error: features.BadValueError, kind: Kind
) -> UserError:
    """The error of a value that is not of its column's kind.

    Args:
      place: Returns file and line of the row with an index.
      row: Index of the first of the rows that were converted.
      error: The value.
      kind: The column's kind.
    """
    return UserError(
        error.reason,
        place=Place(f"{place(row + error.row)}: column `{error.column}`"),
        received=repr(str(error.value)[:100]),
        expected=_allowed(kind, error.value),
        remedy="Correct the value (a missing one is an empty field), or the "
        "column's type in the schema.",
    )


def _allowed(kind: Kind, value: object) -> str:
    """The values that a column of a kind allows; for a too large number, the range."""
    beyond = isinstance(value, int) and not -(2**63) <= value < 2**63
    within = f" from {-(2**63)} to {2**63 - 1}; BYTES keeps all digits"
    return kind.name + within * (beyond and kind == Kind.INT)
