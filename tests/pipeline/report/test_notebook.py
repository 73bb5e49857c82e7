"""What a notebook shows of the values that `import strategos` returns."""

from __future__ import annotations

import html.parser
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategos
from strategos.components.errors import ExitCode, Place
from strategos.pipeline import api
from strategos.pipeline.history.runs import NodeRun, Run
from strategos.pipeline.report import notebook

HOSTILE = "</script><script>alert(1)</script>\u202e 🛫 <b>&amp; var(--c1)"
HISTORY = {"loss": [0.7, 0.5, 0.4], "val_loss": [0.8, 0.6, 0.55], "auc": [0.6, 0.7]}


def run(number=1, **fields):
    known = {"outcome": "blessed", "blessed": True, "metrics": {"auc": 0.7 + number}}
    known |= {"trainer": {"strategy": "one_device", "history": HISTORY}}
    nodes = (NodeRun("Trainer", "complete", 2.5, 100),)
    started = 1_795_278_914.0 + number
    known |= {"run_id": f"20261121-1635{number:02}", "pipeline": "flights"}
    known |= {"started": started, "finished": started + 9, "nodes": nodes}
    return Run(**known | fields)


class _Read(html.parser.HTMLParser):
    """The cells of a page's tables, row by row, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.text, self._in_cell = [], set(), "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data


def test_a_result_is_tables_and_a_chart_of_each_curve():
    result = strategos.RunResult(ExitCode.DONE, run())
    assert ["auc", "1.7000"] in _Read(result._repr_html_()).rows
    charts = dict(notebook.specifications(result._sections()))
    assert list(charts)[:2] == ["loss by epoch", "auc by epoch"]
    drawn = charts["loss by epoch"]["data"]["values"]
    assert [each["value"] for each in drawn] == HISTORY["loss"] + HISTORY["val_loss"]
    assert [each["epoch"] for each in drawn] == [1, 2, 3] * 2
    assert "var(" not in str({k: v for k, v in charts.items() if k != "data"})


def test_a_history_is_a_table_and_the_course_of_a_metric():
    runs = api._History([run(3), run(2, metrics={}), run(1)])
    head, *rows = _Read(runs._repr_html_()).rows[:4]
    assert head[:4] == ["run", "outcome", "started", "took"]
    assert [row[0] for row in rows] == [each.run_id for each in runs]
    assert [row[4] for row in rows] == ["3.7000", "\N{EN DASH}", "1.7000"]
    ((_, chart),) = notebook.specifications(runs._sections())
    values = [(x["number"], x["value"]) for x in chart["data"]["values"]]
    assert values == [(1, 1.7), (3, 3.7)]
    assert runs == (run(3), run(2, metrics={}), run(1))
    assert repr(runs) == repr(tuple(runs))


def test_a_single_run_with_details_is_shown_as_a_result():
    shown = api._History([run()])._repr_html_()
    assert shown == strategos.RunResult(ExitCode.DONE, run())._repr_html_()
    assert "No runs." in api._History()._repr_html_()


def test_problems_are_a_table():
    where = Place("pipeline.yaml", 3)
    problem = strategos.BadInputError(
        "unknown key", key="trainer.epoch", place=where, remedy="Remove it."
    )
    shown = _Read(strategos.Validation((problem,), None)._repr_html_())
    assert shown.rows[1] == [str(where), "trainer.epoch", "unknown key", "Remove it."]
    assert "No problems" in strategos.Validation((), None)._repr_html_()


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
    | st.just(HOSTILE)
)
def test_text_of_the_data_stays_text(text):
    failed = run(outcome="failed", cause=text, failed_node="Trainer")
    warned = run(warnings=(("Trainer", text),))
    for value in (api._History([failed]), api._History([warned])):
        shown = _Read(value._repr_html_())
        assert not shown.tags & {"script", "b"}
        assert " ".join(text.split()) in " ".join(shown.text.split())
    ((_, chart),) = notebook.specifications(
        api._History([run(2, pipeline=text), run(1)])._sections()
    )
    assert chart["data"]["values"][1]["pipeline"] == text


@pytest.fixture
def shell(monkeypatch):
    """IPython, whose shell has a kernel or none; what it displays."""
    shown = []
    module = SimpleNamespace(display=lambda each, raw: shown.append(each))
    monkeypatch.setitem(sys.modules, "IPython.display", module)

    def start(**attributes):
        ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(**attributes))
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        return shown

    return start


def test_a_kernel_gets_each_form_as_an_output(shell):
    shown = shell(kernel=object())
    result = strategos.RunResult(ExitCode.DONE, run())
    result._ipython_display_()
    assert shown[0] == {"text/plain": repr(result), "text/html": result._repr_html_()}
    assert [set(each) for each in shown[1:]] == [{"text/plain", notebook.VEGA_LITE}] * 3


def test_a_terminal_prints_the_text(shell):
    shell()
    with pytest.raises(NotImplementedError):
        strategos.RunResult(ExitCode.DONE, run())._ipython_display_()
