"""Reports of a real run in a real Chromium."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.pages

SECTIONS = [
    *("verdict", "metrics", "slices", "training", "data", "graph"),
    *("lineage", "settings", "environment", "warnings"),
]
# The values that Vega has drawn, by chart.
_DRAWN = """async () => {
  await reportDrawn;
  const drawn = {};
  for (const [id, view] of Object.entries(reportViews)) drawn[id] = view.data("rows");
  return JSON.parse(JSON.stringify(drawn));
}"""
# The cells of the table behind each chart, as they are shown.
_TABLES = """() => Object.fromEntries(
  [...document.querySelectorAll(".chart")].map(chart => [
    chart.id,
    [...chart.parentElement.querySelectorAll("tbody tr")].map(
      row => [...row.cells].map(cell => cell.textContent.trim()))]))"""
# What of the page is wider than the screen, apart from what scrolls by itself.
_WIDE = "() => document.documentElement.scrollWidth - innerWidth"
_HEIGHTS = """() => Object.fromEntries(
  [...document.querySelectorAll(".chart")].map(chart => [
    chart.id, chart.querySelector("svg").getBoundingClientRect().height]))"""


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if not path:
        pytest.skip("needs Chromium (apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Chromium of root starts without its sandbox only.
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe():
    package = pytest.importorskip("axe_playwright_python")
    return Path(package.__file__).with_name("axe.min.js").read_text()


@pytest.fixture(scope="module")
def report(flights):
    """The report of a run of the flights."""
    flights.run()
    done = flights.strategos("report", str(flights.yaml))
    return Path(done.stdout.strip())


@pytest.fixture
def opened(chromium):
    """Opens a page: `with opened(path, width, …) as (page, seen)`."""

    @contextlib.contextmanager
    def opened(path, width=1280, **options):
        seen = SimpleNamespace(errors=[], requests=[])
        viewport = {"width": width, "height": 800}
        page = chromium.new_page(viewport=viewport, **options)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda said: seen.errors.append(said.text))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("reportDrawn")
        yield page, seen
        page.close()

    return opened


def test_charts_are_drawn_without_an_error_and_without_the_network(opened, report):
    with opened(report) as (page, seen):
        drawn = page.evaluate("reportDrawn")
        shapes = page.locator(".chart svg path").count()
    assert drawn >= 4 and shapes > 10
    assert seen.errors == []
    assert seen.requests == [report.as_uri()]


def test_all_sections_are_there_and_linked(opened, report):
    with opened(report) as (page, _):
        sections = page.locator("main section").evaluate_all("x => x.map(e => e.id)")
        links = page.locator("nav a").evaluate_all("x => x.map(e => e.hash)")
        title = page.title()
    assert [x for x in sections if x in SECTIONS] == SECTIONS
    assert links == [f"#{each}" for each in sections]
    assert title == "flights: blessed"


def test_plotted_numbers_are_those_of_the_run_and_of_the_tables(
    opened, report, flights
):
    run = flights.last_run("--slices")
    with opened(report) as (page, _):
        drawn, tables = page.evaluate(_DRAWN), page.evaluate(_TABLES)
    assert drawn.keys() == tables.keys()
    for id, rows in drawn.items():
        assert len(tables[id]) == len(rows)
        for shown, row in zip(tables[id], rows, strict=True):
            for text, value in zip(shown, row.values(), strict=False):
                assert _same(text, value), (id, text, value)
    (loss,) = (name for name in drawn if name.endswith("-loss"))
    history = run["trainer"]["history"]
    values = [each["value"] for each in drawn[loss]]
    assert values == [*history["loss"], *history["val_loss"]]
    seconds = {each["node"]: each["seconds"] for each in drawn["graph-times"]}
    assert seconds == {each["name"]: each["seconds"] for each in run["nodes"]}
    of = {f"{x['feature']}={x['value']}": x for x in run["summary"]["slices"]}
    for row in drawn["slices-auc"]:
        assert row["value"] == of[row["slice"]]["metrics"]["auc"]


def _same(text, value):
    """Whether a cell shows a value, to as many digits as it has."""
    if value is None or isinstance(value, str):
        return text == ("\N{EN DASH}" if value is None else value)
    digits = len(text.partition(".")[2])
    exact = 0.51 * 10**-digits
    if "e" in text or (digits > 4):
        exact = abs(value) * 0.01
    return float(text.replace(",", "")) == pytest.approx(value, abs=exact)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, report, axe, scheme):
    # The page's own policy would not let the checker in.
    with opened(report, 360, color_scheme=scheme, bypass_csp=True) as (page, _):
        page.locator("details:not([open]) summary").evaluate_all(
            "all => all.forEach(each => each.click())"
        )
        page.evaluate(axe)
        found = page.evaluate("axe.run()")
    serious = [
        (each["id"], [node["html"][:100] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert len(found["passes"]) > 15


def test_a_phone_shows_the_page_without_scrolling_sideways(opened, report):
    with opened(report, 360) as (page, _):
        assert page.evaluate(_WIDE) <= 0
        heights = page.evaluate(_HEIGHTS)
    assert min(heights.values()) > 60


def test_dark_mode_changes_the_page_and_the_charts(opened, report):
    colours = {}
    for scheme in ("light", "dark"):
        with opened(report, color_scheme=scheme) as (page, _):
            line = page.locator(".chart svg .mark-line path").first
            colours[scheme] = (
                page.evaluate("getComputedStyle(document.body).backgroundColor"),
                line.evaluate("each => getComputedStyle(each).stroke"),
            )
    light, dark = colours.values()
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_the_keyboard_reaches_links_tables_and_folded_tables(opened, report):
    with opened(report) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        fold = page.locator("details:not([open]) summary").first
        fold.focus()
        page.keyboard.press("Enter")
        assert page.locator("details[open] table").first.is_visible()


def test_print_unfolds_all_tables(opened, report):
    with opened(report) as (page, _):
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() > 0
        assert page.pdf()[:4] == b"%PDF"


def test_a_redacted_report_draws_without_values_of_the_data(opened, flights, tmp_path):
    made = tmp_path / "redacted.html"
    flights.strategos("report", str(flights.yaml), "--redact", "--output", str(made))
    run = flights.last_run("--slices")
    with opened(made) as (page, seen):
        drawn, text = page.evaluate(_DRAWN), page.content()
    values = {f"{x['feature']}={x['value']}" for x in run["summary"]["slices"]}
    assert not [each for each in values if each in text]
    names = {row["slice"] for row in drawn["slices-auc"]}
    assert names and all(re.fullmatch(r"slice \d+", name) for name in names)
    assert not re.search(r"line \d+\b.*flights\.csv", json.dumps(drawn))
    assert seen.errors == []
