"""The page of the step `RunReport` as the pages of Kubeflow Pipelines show it.

HTMLViewer.tsx of KFP 2.0 to 2.17 puts an artifact of the type `system.HTML` into a
sandboxed frame without an origin of its own, at least 600 pixels high, by `srcdoc`.
"""

from __future__ import annotations

import contextlib
import json
import re
from types import SimpleNamespace

import pytest
import yaml

pytestmark = pytest.mark.pages

_KFP = "http://kfp.example/"
_FRAME = """html => {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  frame.src = "about:blank";
  frame.style =
    "border: 1px solid #ddd; box-sizing: border-box; min-height: 600px; width: 100%";
  document.body.append(frame);
  frame.srcdoc = html;
}"""
_DRAWN = """async () => {
  await reportDrawn;
  return JSON.parse(JSON.stringify(Object.fromEntries(
    Object.entries(reportViews).map(([id, view]) => [id, view.data("rows")]))));
}"""
_TOP = "id => document.getElementById(id).getBoundingClientRect().top"
# Red, green and blue of the text and of the ground.
_COLOURS = """() => {
  const {color, backgroundColor} = getComputedStyle(document.body);
  return [color, backgroundColor].map(each => each.match(/\\d+/g));
}"""


@pytest.fixture(scope="module")
def made(flights, kfp_launcher, tmp_path_factory):
    """The page that the step made, and the evaluation of its run."""
    folder = tmp_path_factory.mktemp("kfp")
    overlay, file = folder / "cluster.yaml", folder / "pipeline.yaml"
    checkout = flights.folder.parents[1]
    section = {
        "image": "registry.example.com/flights:1",
        "context": str(checkout),
        "volumes": [{"claim": "serving", "path": str(folder / "serving")}],
    }
    to = {"to": str(folder / "serving")}
    overlay.write_text(json.dumps({"kubeflow": section, "pusher": to}))
    words = ("--target", "kubeflow", "--overlay", str(overlay), "-o", str(file))
    flights.strategos("compile", str(flights.yaml), *flights.sets(), *words)
    spec = next(yaml.safe_load_all(file.read_text()))
    launcher = kfp_launcher(spec, folder / "cluster", flights.warm, checkout)
    tasks = spec["root"]["dag"]["tasks"]
    launcher.run(*(tasks.keys() - {"InfraValidator", "Pusher", "ModelReport"}))
    evaluated = launcher.files("Evaluator", "evaluation") / "summary.json"
    return SimpleNamespace(
        page=launcher.files("RunReport", "report").read_text(),
        summary=json.loads(evaluated.read_text()),
    )


@pytest.fixture
def framed(chromium, made):
    """Opens the page in KFP's frame: `with framed(width, …) as (frame, errors)`."""

    @contextlib.contextmanager
    def framed(width=700, **options):
        errors = []
        viewport = {"width": width, "height": 800}
        page = chromium.new_page(viewport=viewport, **options)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text))
        page.route("**/*", lambda route: route.fulfill(body="<!doctype html><body>"))
        page.goto(_KFP)
        page.evaluate(_FRAME, made.page)
        frame = page.frames[-1]
        frame.wait_for_selector("main section")
        yield frame, errors
        assert page.url == _KFP
        page.close()

    return framed


def test_charts_are_drawn_with_the_numbers_of_the_run(framed, made):
    with framed() as (frame, errors):
        drawn = frame.evaluate(_DRAWN)
        shapes = frame.locator(".chart svg path").count()
        assert frame.evaluate("self.origin") == "null"
    assert errors == []
    assert len(drawn) >= 4 and shapes > 10
    of = {f"{x['feature']}={x['value']}": x for x in made.summary["slices"]}
    assert drawn["slices-auc"]
    for row in drawn["slices-auc"]:
        assert row["value"] == of[row["slice"]]["metrics"]["auc"]


def test_tables_open_and_links_lead_to_their_sections(framed):
    with framed() as (frame, errors):
        frame.evaluate("reportDrawn.then(() => null)")
        fold = frame.locator("details:not([open]) summary").first
        fold.click()
        assert frame.locator("details[open] table").first.is_visible()
        hashes = frame.locator("nav a").evaluate_all("all => all.map(x => x.hash)")
        assert len(hashes) >= 8
        for each in hashes:
            frame.locator(f"nav a[href='{each}']").click()
            assert -1 <= frame.evaluate(_TOP, each[1:]) < 600, each
        skip = frame.locator("a.skip")
        skip.focus()
        skip.press("Enter")
        assert frame.evaluate("document.activeElement.matches('main, main *')")
        assert frame.locator("main section").count() == len(hashes)
    assert errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_frame_needs_no_scrolling_sideways_and_is_readable(framed, scheme):
    with framed(360, color_scheme=scheme) as (frame, errors):
        frame.evaluate("reportDrawn.then(() => null)")
        assert frame.evaluate("innerHeight") == 598
        wide = "document.documentElement.scrollWidth - innerWidth"
        assert frame.evaluate(wide) <= 0
        text, ground = (sum(map(int, each)) for each in frame.evaluate(_COLOURS))
        axes = frame.locator(".chart svg .role-axis-label text").first
        label = axes.evaluate("each => getComputedStyle(each).fill")
    assert errors == []
    is_dark = scheme == "dark"
    assert abs(text - ground) > 500 and (text > ground) == is_dark
    assert (sum(map(int, re.findall(r"\d+", label))) > 380) == is_dark
