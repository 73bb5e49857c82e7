"""The site of the documentation, opened from files in a real Chromium."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.pages

ROOT = Path(__file__).parents[2]


def test_the_search_answers_without_a_server(chromium, tmp_path):
    done = runpy.run_path(str(ROOT / "tests/test_site.py"))["build"](ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    page = chromium.new_page()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "index.html").as_uri())
    page.get_by_role("searchbox").or_(page.locator("input[name=q]")).first.fill(
        "quarantine"
    )
    page.keyboard.press("Enter")
    found = page.locator("#search-results li a").first
    found.wait_for()
    found.click()
    assert "quarantine" in page.locator("article").inner_text()
    assert all(url.startswith(("file:", "data:")) for url in requests)
