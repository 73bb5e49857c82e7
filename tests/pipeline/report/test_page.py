"""The page: hostile text is text, nothing is loaded, scripts are the pinned ones."""

from __future__ import annotations

import hashlib
import html.parser
import json
import re

import pytest

from strategos.pipeline.report import charts, page
from strategos.pipeline.report.document import (
    Chart,
    Column,
    Document,
    Facts,
    Paragraph,
    Raw,
    Section,
    State,
    Table,
)

HOSTILE = '</script><script>alert(1)</script>\u202egnp.\u202c 🛫 <b>&amp; "\u2028'

# Of the packages vega 5.33.1, vega-lite 5.23.0 and vega-interpreter 1.2.1 of npm.
DIGESTS = {
    "vega.min.js": "463f3db6a40b20e9747b4ed38f37ed0add508838f9141b1cf8366784b07b30c8",
    "vega-lite.min.js": (
        "58c27358e26f2d319cf62f45bc17a4c8362f08645001df2ec8d341eee4097c7f"
    ),
    "vega-interpreter.min.js": (
        "ee191cf04168e0c043214cea7c4e5ef80e908daa0e757c19c8061df5f898cf89"
    ),
}


class Reader(html.parser.HTMLParser):
    """The elements of a page: (tag, attributes), and its text without scripts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._inside = [], [], ""
        self.data = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag

    def handle_endtag(self, tag):
        self._inside = "" if tag in ("script", "style") else self._inside

    def handle_data(self, data):
        if self._inside:
            self.data[self._inside] = self.data.get(self._inside, "") + data
        else:
            self.text.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture(scope="module")
def hostile():
    columns = [Column("slice", HOSTILE), Column("value", "auc", True)]
    table = Table(HOSTILE, columns, [(Raw(HOSTILE, "slice"), 0.5), ("b", None)])
    spec = charts.dots("slice", "value", 2, title=HOSTILE, line=0.5)
    blocks = [
        Paragraph(Raw(HOSTILE), "bad"),
        Facts([(HOSTILE, Raw(HOSTILE)), ("n", 1234)]),
        Chart("c-1", spec, table, HOSTILE),
        table,
    ]
    sections = [Section("s", HOSTILE, blocks)]
    whole = Document(HOSTILE, HOSTILE, State("failed", "bad"), sections)
    return page.render(whole, HOSTILE)


def test_hostile_text_is_shown_as_text(hostile):
    read = Reader(hostile)
    assert read.count("script") == 1 + len(page.SCRIPTS)
    assert read.count("b") == 0
    shown = "".join(read.text)
    assert shown.count(HOSTILE) >= 10
    spec = json.loads(read.data["charts"])["c-1"]
    assert spec["data"]["values"] == [
        {"slice": HOSTILE, "value": 0.5},
        {"slice": "b", "value": None},
    ]


def test_values_from_the_data_are_isolated_from_the_direction_of_text(hostile):
    assert Reader(hostile).count("bdi") >= 4


def test_the_page_loads_nothing(hostile):
    read = Reader(hostile)
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in read.elements}
    assert not [x for tag, x in read.elements if {"src", "srcset"} & x.keys()]
    (policy,) = (x["content"] for _, x in read.elements if x.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy and "http" not in policy
    assert len(re.findall("sha256-", policy)) == len(page.SCRIPTS) + 1


def test_the_page_is_small(hostile):
    assert len(hostile.encode()) < 900_000


def test_infinite_numbers_are_no_json_numbers():
    rows = [(1, float("inf")), (2, float("nan"))]
    table = Table("t", [Column("a", "a"), Column("b", "b", True)], rows)
    assert page.records(table) == [{"a": 1, "b": None}, {"a": 2, "b": None}]


@pytest.mark.parametrize("name", DIGESTS)
def test_scripts_are_those_of_npm(name):
    content = (page.ASSETS / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == DIGESTS[name]
    assert name.split(".")[0] in (page.ASSETS / "LICENSES.txt").read_text()
