"""A report without scripts: its charts, read back from their SVG."""

from __future__ import annotations

import html.parser
import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from strategos.pipeline import cli
from strategos.pipeline.report import charts, page, static
from strategos.pipeline.report.document import (
    Chart,
    Column,
    Document,
    Raw,
    Section,
    State,
    Table,
)

HOSTILE = "</text><script>alert(1)</script>&"
_SVG = "{http://www.w3.org/2000/svg}"


class Tags(html.parser.HTMLParser):
    """Counts the tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def __call__(self, tag):
        return [attributes for each, attributes in self.seen if each == tag]


def made(*blocks):
    found = [Section("x", "X", blocks)]
    return Document("title", "subtitle", State("blessed", "good"), found)


def drawn(chart):
    (section,) = static.drawn(made(chart)).sections
    return ET.fromstring(section.blocks[0].svg)


def marks(svg, kind):
    """The shapes of the data in an SVG."""
    groups = (x for x in svg.iter(f"{_SVG}g") if "role-mark" in x.get("class", ""))
    of_kind = (x for x in groups if f"mark-{kind}" in x.get("class"))
    return [path for group in of_kind for path in group.iter(f"{_SVG}path")]


@pytest.fixture(autouse=True)
def vl_convert():
    pytest.importorskip("vl_convert")


def test_bars_are_as_long_as_their_values():
    columns = [Column("name", "name"), Column("value", "value", True)]
    rows = [(Raw(HOSTILE), 30.0), ("b", 120.0), ("c", 60.0)]
    spec = charts.bars("name", "value", 3, title="value")
    svg = drawn(Chart("bars", spec, Table("t", columns, rows), "caption"))
    shapes = [each.get("d") for each in marks(svg, "rect")]
    lengths = [float(re.match(r"M[^h]*h([\d.]+)v", each)[1]) for each in shapes]
    assert [each / lengths[1] for each in lengths] == pytest.approx([0.25, 1, 0.5])
    assert HOSTILE[:7] in "".join(svg.itertext())
    assert not list(svg.iter(f"{_SVG}script"))


def test_lines_pass_through_their_points():
    columns = [Column("epoch", "epoch", True), Column("of", "of")]
    columns.append(Column("loss", "loss", True))
    rows = [(1, "training", 0.5), (2, "training", 0.3), (3, "training", 0.2)]
    spec = charts.lines("epoch", "loss", "of", titles=("epoch", "loss"))
    svg = drawn(Chart("lines", spec, Table("t", columns, rows), "caption"))
    (line,) = marks(svg, "line")
    (x1, y1), (x2, y2), (x3, y3) = (
        map(float, each.split(",")) for each in re.split("[ML]", line.get("d"))[1:]
    )
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.01)
    assert (y2 - y1) / (y3 - y1) == pytest.approx(2 / 3, abs=0.01)


def test_drawings_of_a_page_share_no_id():
    columns = [Column(each, each, True) for each in ("t", "x", "y")]
    columns.append(Column("of", "of"))
    table = Table("curve", columns, [(0, 0.0, 0.0, "a"), (1, 1.0, 1.0, "a")])
    spec = charts.unit_square("t", titles=("x", "y"))
    two = [Chart(each, spec, table, "caption") for each in ("one", "two")]
    tags = Tags(page.render(static.drawn(made(*two)), ""))
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids))
    clips = {x["id"] for x in tags("clippath")}
    used = {x["clip-path"] for _, x in tags.seen if "clip-path" in x}
    assert used == {f"url(#{each})" for each in clips} and len(used) == 2


def test_report_static_has_drawings_and_no_scripts(past_runs, capsys, tmp_path):
    run_id, file = past_runs.ids["pushed"], tmp_path / "run.html"
    words = ["report", run_id, "--root", str(past_runs.root)]
    assert cli.main([*words, "--output", str(tmp_path / "drawn.html")]) == 0
    assert cli.main([*words, "--static", "--output", str(file)]) == 0
    text, usual = file.read_text(), Tags((tmp_path / "drawn.html").read_text())
    tags = Tags(text)
    assert not tags("script") and "script-src 'none'" in text
    assert len(tags("svg")) == len(tags("figure")) == len(usual("figure")) > 0
    assert len(text) < 400_000
    capsys.readouterr()
    assert cli.main([*words, "--static"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert (written.parent.name, written.name) == (run_id, "report-static.html")
    written.unlink()


def test_a_static_report_without_vl_convert_says_what_to_install(
    past_runs, capsys, monkeypatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "vl_convert" else find(name, *rest),
    )
    assert cli.main(["report", "--root", str(past_runs.root), "--static"]) == 2
    err = capsys.readouterr().err
    assert "pip install 'strategos[static]'" in err
    assert "--static: vl-convert is not installed" in err
