"""Prints the tensors of a training step for `strategos debug`, as they appear."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from strategos.components.wording import counted

if TYPE_CHECKING:
    from strategos.components.trainer.data.tensor_values import Values


def show(title: str, values: Sequence[Values]) -> None:
    """Prints a title, and a line for each tensor.

    Args:
      title: A name for the tensors, e.g. "features".
      values: Their summaries.
    """
    widths = [
        max((len(getattr(each, field)) for each in values), default=0)
        for field in ("name", "dtype", "shape")
    ]
    print(title)
    for each in values:
        columns = zip((each.name, each.dtype, each.shape), widths, strict=True)
        start = "  ".join(text.ljust(width) for text, width in columns)
        print(f"  {start}  {'  '.join(_facts(each))}".rstrip())
    sys.stdout.flush()  # between the prints of the user's own code


def _facts(values: Values) -> Iterator[str]:
    if values.smallest is not None and values.largest is not None:
        if values.smallest == values.largest:
            yield f"{values.smallest:.4g}"
        else:
            yield f"{values.smallest:.4g} … {values.largest:.4g}"
            yield f"mean {values.mean:.4g}"
    if values.norm is not None:
        yield f"norm {values.norm:.4g}"
    if values.not_finite:
        where = f", in rows {', '.join(map(str, values.rows))}" if values.rows else ""
        yield f"{counted(values.not_finite, 'value')} NaN or infinite{where}"
    if values.note:
        yield values.note
