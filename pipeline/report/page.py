"""Writes a document as one HTML page that loads nothing.

The page contains its style and scripts; its Content-Security-Policy allows these by
their hashes, and no other source. Text from data is escaped by Jinja, and charts are
JSON in which no tag can begin.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Diff,
    Document,
    Facts,
    Link,
    Raw,
    State,
    Table,
)
from strategos.pipeline.view import terminal

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.min.js", "report.js")
_LONG = 30  # characters
_KINDS = {Chart: "chart", Table: "table", Facts: "facts", Diff: "diff"}
_SIGNS = {"+": "ins", "-": "del", "@": "place"}  # of the lines of a diff


def render(document: Document, footer: str) -> str:
    """The page of a document; without scripts if it has no chart for them to draw.

    Args:
      document: The document.
      footer: The last line of the page.
    """
    style, specs = asset("report.css"), specifications(document)
    scripts = [asset(name) for name in SCRIPTS] if specs else []
    return (
        environment()
        .get_template("page.html")
        .render(
            document=document,
            footer=footer,
            style=Markup(style),
            style_hash=Markup(_hash(style)),
            scripts=[Markup(each) for each in scripts],
            script_hashes=Markup(" ".join(map(_hash, scripts)) or "'none'"),
            charts=Markup(embedded(specs)) if specs else "",
        )
    )


@functools.cache
def environment(*folders: Path) -> jinja2.Environment:
    """Jinja's environment for `frame.html` and templates that extend it.

    Args:
      *folders: Folders of templates, besides `ASSETS`.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, ASSETS]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": _number, "grouped": _grouped, "is_long": _is_long}
    made.filters |= {"sign": _sign, "drawing": Markup}
    made.tests["state"] = lambda value: isinstance(value, State)
    made.tests["raw"] = lambda value: isinstance(value, Raw)
    made.tests["link"] = lambda value: isinstance(value, Link)
    return made


def specifications(document: Document) -> dict[str, dict[str, Any]]:
    """The Vega-Lite specification of each chart to draw, with its data, by its id."""
    return {
        block.id: charts.with_data(block.spec, records(block.table))
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Chart) and not block.svg
    }


def records(table: Table) -> list[dict[str, Any]]:
    """The rows of a table as values by key of the column."""
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, map(_plain, row), strict=True)) for row in table.rows]


def embedded(value: Any) -> str:
    """JSON for a script element: without `<`, so that no tag begins or ends in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for sign in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _plain(cell: Cell) -> Any:
    if isinstance(cell, (State, Link)):
        return cell.text
    value = cell.value if isinstance(cell, Raw) else cell
    infinite = isinstance(value, float) and not math.isfinite(value)
    return None if infinite else value


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "undefined"
    if 0 < abs(value) < 0.001:
        return f"{value:.3g}"
    return terminal.number(value)


def _sign(line: str) -> str:
    """The class of a line of a diff."""
    return "file" if line[:4] in ("--- ", "+++ ") else _SIGNS.get(line[:1], "")


def _is_long(cell: Cell) -> bool:
    """Whether the text of a cell needs room for more than a line."""
    return len(str(_plain(cell))) > _LONG


def _grouped(blocks: Iterable[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Neighbours of one kind together: charts stand side by side."""
    for kind, some in itertools.groupby(
        blocks, lambda each: _KINDS.get(type(each), "paragraph")
    ):
        yield kind, list(some)


@functools.cache
def asset(name: str, folder: Path = ASSETS) -> str:
    """The text of a style or a script.

    Args:
      name: The file's name.
      folder: Its folder.
    """
    # A map would be asked for by a debugger only, and is not in the page.
    text = (folder / name).read_text(encoding="utf-8")
    return re.sub(r"//# sourceMappingURL=\S+\s*$", "", text)


@functools.cache
def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
