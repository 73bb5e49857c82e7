"""Reports of a real run, and the pages of `strategos ui`, in a real Chromium."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.root import lock, metadata

pytestmark = pytest.mark.pages

SECTIONS = [
    *("verdict", "metrics", "answers", "slices", "training", "data", "graph"),
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
        page.goto(path if isinstance(path, str) else path.as_uri())
        page.evaluate("window.reportDrawn")
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
        assert _serious(page, axe) == []


def _serious(page, axe):
    """What axe finds on a page with all tables unfolded."""
    page.locator("details:not([open]) summary").evaluate_all(
        "all => all.forEach(each => each.click())"
    )
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10
    return [
        (each["id"], [node["html"][:100] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


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


@pytest.fixture(scope="module")
def serve():
    """Starts `strategos ui`: `with serve(command, environment) as address`."""

    @contextlib.contextmanager
    def serve(command, environment=None):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as server:
            try:
                yield server.stdout.readline().strip().rstrip("/")
            finally:
                server.send_signal(signal.SIGINT)
        assert server.returncode == 0

    return serve


@pytest.fixture(scope="module")
def pages(serve, flights, report):
    """The address of the pages of the flights; and those of its pages."""
    words = [str(flights.yaml)]
    command = flights.command("ui", *words, "--port", "0")
    run_id = flights.last_run()["run_id"]
    with serve(command, flights.environment()) as address:
        paths = ["/runs", "/models", "/leaderboard", "/schedule", "/spans"]
        paths += [f"/runs/{run_id}", f"/lineage?model={run_id}"]
        yield SimpleNamespace(address=address, paths=paths)


def test_pages_of_the_ui_show_without_errors_and_all_links_lead_somewhere(
    opened, pages
):
    links = set()
    for path in pages.paths:
        with opened(pages.address + path) as (page, seen):
            assert seen.errors == []
            assert all(x.startswith(pages.address) for x in seen.requests)
            found = page.locator("a").evaluate_all("all => all.map(x => x.href)")
        links |= {each.partition("#")[0] for each in found}
    assert len(links) >= 8
    with opened(f"{pages.address}/runs") as (page, _):
        for link in links:
            assert link.startswith(pages.address), link
            assert page.request.get(link).status == 200, link


def test_charts_of_a_run_are_drawn_as_in_its_report(opened, pages, report):
    with opened(report) as (page, _):
        wanted = page.evaluate(_DRAWN)
    (path,) = (each for each in pages.paths if each.startswith("/runs/"))
    with opened(pages.address + path) as (page, _):
        assert page.evaluate(_DRAWN) == wanted
    with opened(f"{pages.address}{path}/report.html") as (page, seen):
        assert page.evaluate(_DRAWN) == wanted and seen.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_the_ui_fit_a_phone_and_axe_finds_nothing_serious(
    opened, pages, axe, scheme
):
    for path in pages.paths:
        address = pages.address + path
        with opened(address, 360, color_scheme=scheme, bypass_csp=True) as (page, _):
            assert page.evaluate(_WIDE) <= 0, path
            assert _serious(page, axe) == [], path


def test_curves_grow_while_a_run_goes_on(opened, serve, flights, tmp_path):
    store = ml_metadata.MetadataStore(metadata.connection(tmp_path))
    kind = store.put_context_type(mlmd.ContextType(name="pipeline_run"))
    store.put_contexts([mlmd.Context(type_id=kind, name="r1")])
    folder = tmp_path / ".strategos" / "runs" / "r1"
    folder.mkdir(parents=True)

    def emit(event, **fields):
        with (folder / "events.jsonl").open("a") as file:
            at = {"event": event, "time": time.time()}
            file.write(json.dumps({**at, "node": "Trainer", **fields}) + "\n")

    command = flights.command("ui", "--root", str(tmp_path), "--port", "0")
    with serve(command) as address, lock.hold(tmp_path, run_id="r1"):
        emit("run_started", node=None, run_id="r1", nodes=["Trainer"])
        emit("node_started")
        with opened(f"{address}/runs/r1") as (page, seen):
            assert page.locator("#live .chart").count() == 0
            for epoch in (1, 2):
                emit("epoch", epoch=epoch, values={"loss": 1 / epoch})
                _wait_for_points(page, epoch)
            page.locator("#live summary").first.click()
            emit("progress", message="epoch 3/9")
            page.get_by_text("epoch 3/9").wait_for(timeout=60_000)
            assert page.locator("#live details[open]").count() == 1
            shown = page.locator("#live details tbody tr").all_inner_texts()
            assert [each.split()[-1] for each in shown] == ["1.0000", "0.5000"]
            emit("warning", message="<script>alert(1)</script>")
            page.get_by_text("<script>alert(1)").wait_for(timeout=60_000)
            assert seen.errors == []


def _wait_for_points(page, points):
    """Waits until the chart has so many: the policy lets no other wait in."""
    drawn = "Object.values(reportViews).map(view => view.data('rows').length)"
    for _ in range(120):
        if page.evaluate(drawn) == [points]:
            return
        page.wait_for_timeout(500)
    raise AssertionError(page.evaluate(drawn))


def test_a_comparison_shows_what_changed_on_a_phone_too(opened, flights, axe, tmp_path):
    first = flights.last_run()
    hostile = "</pre><script>alert(1)</script>\u202e"
    with (flights.folder / "model.py").open("a") as file:
        file.write(f"\n# {hostile} {'long ' * 50}\n")
    flights.run("--set", "trainer.epochs=1")
    last, made = flights.last_run(), tmp_path / "compared.html"
    words = ("--compare", first["run_id"], "--output", str(made))
    flights.strategos("report", str(flights.yaml), *words)
    for scheme in ("light", "dark"):
        with opened(made, 360, color_scheme=scheme, bypass_csp=True) as (page, seen):
            assert page.evaluate(_WIDE) <= 0
            assert _serious(page, axe) == [] and seen.errors == []
    with opened(made) as (page, seen):
        tables = page.locator("#compared table").all_inner_texts()
        changed = page.locator("#changed").inner_text()
        added = page.locator(".diff .ins").last.inner_text()
        assert seen.errors == []
    for name, value in last["metrics"].items():
        row = next(x for x in tables[0].splitlines() if x.startswith(f"{name}\t"))
        cells = row.split("\t")
        for shown, run in zip(cells[1:3], (first, last), strict=True):
            assert _same(shown, run["metrics"][name])
        assert _same(cells[3], value - first["metrics"][name])
    assert "trainer.epochs" in changed and "model.py" in changed
    assert added.startswith(f"+# {hostile} long")
