"""A report as plain values: sections of paragraphs, facts, tables and charts.

`content` builds a document from records, `page` writes it as HTML. A chart draws the
rows of its table, so the two never differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["good", "bad", "warn", "plain"]


@dataclasses.dataclass(frozen=True)
class State:
    """A word with a colour: the state of a node, the result of a bound.

    Attributes:
      text: The word.
      kind: Its colour.
    """

    text: str
    kind: Kind = "plain"


@dataclasses.dataclass(frozen=True)
class Raw:
    """A value or a text that comes from the data, or may quote the data.

    Attributes:
      value: The value.
      name: Its kind, e.g. `value`; a redacted report shows the kind and a number.
    """

    value: str | float | int | None
    name: str = "value"


@dataclasses.dataclass(frozen=True)
class Link:
    """A text that leads to another page; only on pages that a server shows.

    Attributes:
      text: The text.
      href: The address.
    """

    text: str
    href: str


Cell: TypeAlias = "str | int | float | State | Raw | Link | None"


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      key: The column's name in the specification of a chart.
      title: Its heading.
      numeric: Whether its cells are numbers, aligned at the right.
    """

    key: str
    title: str
    numeric: bool = False


def header(line: str) -> list[Column]:
    """The columns of a table from one line, such as `feature | share#: missing, %`.

    Args:
      line: For each column its key, then `#` if its cells are numbers, then its title
        unless that is the key.
    """
    parts = (column.partition(": ") for column in line.split(" | "))
    return [
        Column(key.rstrip("#"), title or key.rstrip("#"), key.endswith("#"))
        for key, _, title in parts
    ]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
      title: Its caption.
      columns: Its columns.
      rows: A cell for each column.
      left_out: Number of rows that are not shown.
      folded: Whether the reader unfolds it; print shows it in any case.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    left_out: int = 0
    folded: bool = False


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart of a table.

    Attributes:
      id: Unique in the report; of letters, digits and hyphens.
      spec: A Vega-Lite specification without data; its fields are keys of columns.
      table: The data.
      caption: One sentence on how to read the chart.
      unfolded: Whether the table is shown without being unfolded.
      of_few_rows: Whether it may show values of single rows of the data, so that a
        redacted report leaves it out.
      svg: The chart as it is drawn; "": scripts of the page draw it.
    """

    id: str
    spec: Mapping[str, Any]
    table: Table
    caption: str
    unfolded: bool = False
    of_few_rows: bool = False
    svg: str = ""

    @property
    def title(self) -> str:
        """The title of the chart and of its table."""
        return self.table.title


@dataclasses.dataclass(frozen=True)
class Facts:
    """Labelled values.

    Attributes:
      rows: (label, value) each.
    """

    rows: Sequence[tuple[str, Cell]]


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Attributes:
      text: The text.
      kind: Its colour; other than `plain` for a notice.
    """

    text: str | Raw
    kind: Kind = "plain"


@dataclasses.dataclass(frozen=True)
class Diff:
    """The differences between two files of code.

    Attributes:
      title: The file.
      lines: The lines of a unified diff.
      left_out: Number of lines that are not shown.
    """

    title: str
    lines: Sequence[str]
    left_out: int = 0


Block: TypeAlias = "Paragraph | Facts | Table | Chart | Diff"


@dataclasses.dataclass(frozen=True)
class Section:
    """A section with a heading.

    Attributes:
      id: The anchor.
      title: The heading.
      blocks: The content, from top to bottom.
    """

    id: str
    title: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
      title: The title of the page.
      subtitle: The line below the title.
      verdict: The outcome of the run.
      sections: The sections, in order.
    """

    title: str
    subtitle: str
    verdict: State
    sections: Sequence[Section]


def redacted(document: Document) -> Document:
    """The document without values from the data: each becomes its name and a number.

    Equal values get equal numbers, so that a row of one table can be found in another.
    Raw numbers become None, and charts of few rows are left out.

    Args:
      document: The document.
    """
    sections = [
        dataclasses.replace(each, blocks=list(filterfalse(_shows_rows, each.blocks)))
        for each in document.sections
    ]
    shown = [each for each in sections if each.blocks]
    return _replaced(dataclasses.replace(document, sections=shown), _Names())


def cells(document: Document) -> Iterator[Cell]:
    """All cells of a document, in order."""
    seen: list[Cell] = []

    def see(cell: Cell) -> Cell:
        seen.append(cell)
        return cell

    _replaced(document, see)
    return iter(seen)


def _shows_rows(block: Block) -> bool:
    return isinstance(block, Chart) and block.of_few_rows


class _Names:
    """Names for raw values."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[Any, int]] = {}

    def __call__(self, cell: Cell) -> Cell:
        if not isinstance(cell, Raw):
            return cell
        if not isinstance(cell.value, str):
            return None
        known = self._numbers.setdefault(cell.name, {})
        return f"{cell.name} {known.setdefault(cell.value, len(known) + 1)}"


def with_blocks(document: Document, new: Callable[[Block], Block]) -> Document:
    """The document with other blocks.

    Args:
      document: The document.
      new: Maps each block to another one.
    """
    sections = [
        dataclasses.replace(each, blocks=list(map(new, each.blocks)))
        for each in document.sections
    ]
    return dataclasses.replace(document, sections=sections)


def _replaced(document: Document, new: Callable[[Cell], Cell]) -> Document:
    return with_blocks(document, lambda block: _block(block, new))


def _block(block: Block, new: Callable[[Cell], Cell]) -> Block:
    if isinstance(block, Diff):
        return block
    if isinstance(block, Paragraph):
        text = new(block.text)
        return Paragraph(text if isinstance(text, Raw) else str(text), block.kind)
    if isinstance(block, Facts):
        return Facts([(label, new(value)) for label, value in block.rows])
    if isinstance(block, Chart):
        return dataclasses.replace(block, table=_table(block.table, new))
    return _table(block, new)


def _table(table: Table, new: Callable[[Cell], Cell]) -> Table:
    rows = [tuple(new(cell) for cell in row) for row in table.rows]
    return dataclasses.replace(table, rows=rows)
