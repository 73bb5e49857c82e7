"""The documentation as a site: what `make site` builds, and what it rejects."""

from __future__ import annotations

import html.parser
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = runpy.run_path(str(ROOT / "tests" / "test_docs.py"))["PAGES"]
# What makes a browser load something; a link loads nothing until it is clicked.
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}


def build(source, target):
    """Runs the command of `make site`; returns the finished process."""
    (command,) = re.findall(
        r"^\t@\.venv/bin/(sphinx-build .*)$", (ROOT / "Makefile").read_text(), re.M
    )
    words = command.replace("build/site", str(target)).split()
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *words[1:]],
        cwd=source,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert (done.returncode, done.stderr) == (0, "")
    return target


class _Loaded(html.parser.HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if (tag, name) in _LOADS]


@pytest.mark.long
def test_the_site_has_each_page_and_loads_nothing_from_the_network(site):
    for page in PAGES:
        path = site / page.relative_to(ROOT).with_suffix(".html")
        loaded = _Loaded()
        loaded.feed(path.read_text())
        for address in loaded.addresses:
            assert (path.parent / address.split("?")[0]).resolve().is_file(), address
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\((?!['\"]?data:)", style.read_text()), style
    assert 'url=README.html"' in (site / "index.html").read_text()


@pytest.mark.long
def test_the_navigation_has_the_headings_of_the_list_of_pages(site):
    captions = re.findall(r'class="caption-text">([^<]*)', _front(site))
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/README.md").read_text(), re.M)
    assert captions == headings


def _front(site):
    return (site / "README.html").read_text()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](docs/README.md#nowhere)", "nowhere"),
        ("[a](docs/missing.md)", "docs/missing.md"),
        ("[a](docs/missing.py)", "docs/missing.py"),
        ("![a](docs/missing.png)", "docs/missing.png"),
    ],
)
def test_a_link_that_leads_nowhere_is_rejected(text, complaint, tmp_path):
    done = _small_site(tmp_path, text)
    assert done.returncode != 0
    assert "README.md:3" in done.stderr
    assert complaint in done.stderr


def test_a_page_that_no_list_has_is_rejected(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    done = _small_site(tmp_path, "Words.")
    assert done.returncode != 0
    assert "docs/lost.md" in done.stderr


def _small_site(folder, text):
    (folder / "docs").mkdir(exist_ok=True)
    shutil.copy(ROOT / "docs" / "conf.py", folder / "docs")
    (folder / "README.md").write_text(f"# Front\n\n{text}\n")
    (folder / "docs" / "README.md").write_text(
        "# All\n\n## Start\n\n- [A](README.md)\n"
    )
    return build(folder, folder / "site")
