"""Charts for notebooks, drawn by Vega in a real Chromium."""

from __future__ import annotations

import json

import pytest

import strategos
from strategos.components.errors import ExitCode
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.report import notebook, page

pytestmark = pytest.mark.pages

_DRAW = """async (spec) => {
  const parsed = vega.parse(vegaLite.compile(spec).spec);
  const view = new vega.View(parsed, {renderer: "svg"});
  const drawn = new DOMParser().parseFromString(await view.toSVG(), "image/svg+xml");
  return [drawn.querySelectorAll("path.background").length && view.background(),
          [...drawn.querySelectorAll("text")].map(text => text.textContent)];
}"""


def test_each_chart_is_drawn_with_its_title(chromium):
    history = {"loss": [0.7, 0.5], "val_loss": [0.8, 0.6]}
    trainer = {"strategy": "one_device", "history": history}
    nodes = (NodeRun("Trainer", "complete", 2.5, 100),)
    run = Run("1", "flights", 0.0, 9.0, "blessed", nodes=nodes, trainer=trainer)
    shown = strategos.RunResult(ExitCode.DONE, run)._sections()
    opened, failures = chromium.new_page(), []
    opened.on("pageerror", lambda error: failures.append(str(error)))
    for name in page.SCRIPTS[:2]:
        opened.add_script_tag(content=page.asset(name))
    charts = list(notebook.specifications(shown))
    for title, spec in charts:
        fixed = {**spec, "width": 400}
        background, texts = opened.evaluate(_DRAW, json.loads(json.dumps(fixed)))
        assert title in texts
        assert background == "#ffffff"
    assert "loss by epoch" in dict(charts)
    assert failures == []
