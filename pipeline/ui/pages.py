"""The parts of a page of `strategos ui`, and the addresses of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from strategos.pipeline.report.document import Document, Link, Paragraph, Section, State

SITE = (
    ("/runs", "Runs"),
    ("/models", "Models"),
    ("/leaderboard", "Leaderboard"),
    ("/schedule", "Schedule"),
    ("/spans", "Spans"),
)
"""Address and title of each page that all pages name."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A link to the same page with other rows.

    Attributes:
      text: The link's text.
      href: Its address.
      is_current: Whether the page shows these rows.
    """

    text: str
    href: str
    is_current: bool = False


@dataclasses.dataclass(frozen=True)
class Search:
    """A field that filters the rows of a page by words.

    Attributes:
      words: The words to filter by; "" for none.
      label: The label of the field: the columns that it searches.
      kept: The rest of the page's query.
    """

    words: str
    label: str
    kept: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
      document: Its content.
      here: The address of the page of `SITE` to which it belongs.
      choices: Links above the content.
      turns: Links to neighbouring pages, below the content.
      live: The address of the state of a run in progress; "" for others.
      search: The field above the content; None without one.
    """

    document: Document
    here: str
    choices: Sequence[Choice] = ()
    turns: Sequence[Choice] = ()
    live: str = ""
    search: Search | None = None


def simple(
    here: str,
    title: str,
    subtitle: str,
    *sections: Section,
    choices: Sequence[Choice] = (),
    turns: Sequence[Choice] = (),
    search: Search | None = None,
) -> Page:
    """A page without a verdict.

    Args:
      here: As of `Page`.
      title: Its title.
      subtitle: The line below the title.
      *sections: Its content.
      choices: As of `Page`.
      turns: As of `Page`.
      search: As of `Page`.
    """
    about = Document(title, subtitle, State(""), sections)
    return Page(about, here, choices, turns, search=search)


def nothing_yet(here: str, title: str, root: str) -> Page:
    """The page of a root in which nothing has run.

    Args:
      here: As of `Page`.
      title: Its title.
      root: The root.
    """
    text = "No runs yet. Start one with `strategos run pipeline.yaml`."
    return simple(here, title, root, Section("none", title, [Paragraph(text)]))


def address(path: str, query: Mapping[str, str | int | None] | None = None) -> str:
    """An address with the parts of a query that are set.

    Args:
      path: Its path.
      query: Values by name.
    """
    parts = {name: value for name, value in (query or {}).items() if value}
    return f"{path}?{urlencode(parts)}" if parts else path


def run_link(run_id: str) -> Link:
    """A link to the page of a run, with its id as the text."""
    return Link(run_id, run_address(run_id))


def run_address(run_id: str) -> str:
    """The address of the page of a run.

    Args:
      run_id: Its id.
    """
    return f"/runs/{quote(run_id, safe=':')}"


def turns(path: str, query: Mapping[str, str | int | None], last: int) -> list[Choice]:
    """Links to the pages before and after one of several.

    Args:
      path: Their path.
      query: Their query; `page` is the number of the page, from 1.
      last: The number of the last page.
    """
    number = int(query.get("page") or 1)
    wanted = {"First": 1, "Newer": number - 1, "Older": number + 1, "Last": last}
    return [
        Choice(text, address(path, {**query, "page": page if page > 1 else None}))
        for text, page in wanted.items()
        if 1 <= page <= last and page != number
    ]
