"""The section on mistakes in settings, files and data."""

from __future__ import annotations

from collections.abc import Sequence

from strategos.components.errors import UserError
from strategos.components.wording import counted
from strategos.pipeline.report.document import (
    Block,
    Column,
    Paragraph,
    Raw,
    Section,
    Table,
)

_COLUMNS = ("place", "key", "problem", "remedy")


def problems(errors: Sequence[UserError]) -> Section:
    """A row for each problem, in words that may quote the data.

    Args:
      errors: The problems, in reading order.
    """
    blocks: list[Block] = [Paragraph("No problems found.", "good")]
    if errors:
        rows = [tuple(Raw(text) for text in _cells(each)) for each in errors]
        blocks = [Table("Problems", [Column(x, x) for x in _COLUMNS], rows)]
    return Section("problems", counted(len(errors), "problem"), blocks)


def _cells(problem: UserError) -> tuple[str, str, str, str]:
    headline, _, remedy = str(problem).partition("\n")
    place = str(problem.place or "")
    what = headline.removeprefix(f"{place}: ").removeprefix(f"{problem.key}: ")
    return place, problem.key, what, remedy.strip()
