"""The documentation as a site: `make site` builds it from the pages that GitHub shows.

The source folder of Sphinx is the checkout, so that links between pages are those of
the repository. `docs/README.md` lists the pages; its lists are the site's navigation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MAP = "docs/README"

project = "Strategos"
root_doc = "README"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("docs/**.md", "kubeflow/README.md", "examples/*/README.md"),
]
# Large folders of the checkout that hold no page.
exclude_patterns = [".*", "build", "src", "tests", "components", "pipeline"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Strategos"
html_copy_source = False
html_show_sphinx = False

_ITEM = re.compile(r"^( *)- \[[^\]]*\]\(([^)#]+)\.md\)", re.M)


def setup(app: Any) -> None:
    """Connects the navigation, and the address of the site."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_index)


def navigation() -> Iterator[tuple[str, str, list[str]]]:
    """Yields what `docs/README.md` lists.

    Yields:
        The page below which pages are listed, the heading above them, and their names:
        of the front page once for each heading, of another page its nested items.
    """
    _, *sections = re.split(r"^## (.*)\n", (ROOT / f"{MAP}.md").read_text(), flags=re.M)
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        below: dict[str, list[str]] = {root_doc: []}
        for indent, link in _ITEM.findall(text):
            name = (ROOT / "docs" / link).resolve().relative_to(ROOT).as_posix()
            parent = below[root_doc][-1] if indent else root_doc
            below.setdefault(parent, []).append(name)
        for parent, names in below.items():
            yield parent, title if parent == root_doc else "", names


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    """Adds hidden tables of contents to a page that is read."""
    for parent, title, names in navigation():
        if parent == page:
            listed = "\n".join(f"/{name}" for name in names if name != page)
            caption = f":caption: {title}\n" * bool(title)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{listed}\n```\n"


def _add_index(app: Any, error: Exception | None) -> None:
    """Leads from the address of the site to its front page."""
    page = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
    (Path(app.outdir) / "index.html").write_text(page)
