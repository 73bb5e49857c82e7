"""Confidence intervals in the terminal, the report and the comparison of runs."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from scipy import stats

from strategos.pipeline.comparing import view
from strategos.pipeline.history.runs import Run
from strategos.pipeline.made_from import compared
from strategos.pipeline.report.sections import comparison, outcome
from strategos.pipeline.view import report, results

INTERVALS = {"confidence_level": 0.95, "metrics": {"auc": [0.75, 0.79]}}
SUMMARY = {
    "examples": 1206,
    "overall": {"auc": 0.77, "recall@0.3": 0.5},
    "baseline": {"auc": 0.76, "recall@0.3": 0.5},
    "intervals": {**INTERVALS, "changes": {"auc": [0.004, 0.016]}},
}


def printed(table):
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    lines = console.file.getvalue().splitlines()
    return [[x.strip() for x in line.split("  ") if x.strip()] for line in lines]


def test_the_terminal_has_the_margin_of_metric_and_change():
    heading, auc, recall = printed(results.overall(SUMMARY))
    assert heading[1:] == ["model", "± (95 %)", "in production", "change", "± (95 %)"]
    assert auc == ["auc", "0.7700", "0.0200", "0.7600", "+0.0100", "0.0060"]
    assert recall == ["recall@0.3", "0.5000", "-", "0.5000", "same", "-"]


def test_without_intervals_there_are_no_such_columns():
    plain = {key: value for key, value in SUMMARY.items() if key != "intervals"}
    heading, auc, _ = printed(results.overall(plain))
    assert heading[1:] == ["model", "in production", "change"]
    assert auc == ["auc", "0.7700", "0.7600", "+0.0100"]


def test_the_report_has_them():
    table = outcome._metrics(SUMMARY)
    titles = [column.title for column in table.columns]
    assert titles == [
        *("metric", "model", "± (95 %)", "in production", "change", "± (95 %)", "")
    ]
    row = table.rows[0]
    assert row[:2] == ["auc", 0.77] and round(row[2], 9) == 0.02
    assert round(row[5], 9) == 0.006


def test_the_comparison_of_runs_has_them():
    change = compared.MetricChange("auc", 0.76, 0.77, after_margin=0.02)
    _, row = printed(view.metrics([change], "metrics"))
    assert row == ["auc", "0.7600", "0.7700 ± 0.0200", "+0.0100"]


def compared_runs(before, after, level=0.95):
    """The change of `auc` between two runs: (value, half width of its interval)."""
    runs = []
    for (value, half), own in ((before, 0.95), (after, level)):
        interval = [value - half, value + half]
        intervals = {"confidence_level": own, "metrics": {"auc": interval}}
        run = Run("r", "p", 0.0, 1.0, "blessed", metrics={"auc": value})
        summary = {"intervals": intervals}
        runs.append(dataclasses.replace(run, summary=summary))
    (change,) = compared._metrics(*runs)
    return change


@pytest.mark.parametrize(
    ("after", "is_beyond"), [(0.81, True), (0.78, False), (0.70, True), (0.76, False)]
)
def test_a_change_is_beyond_the_margin_of_two_samples_or_not(after, is_beyond):
    change = compared_runs((0.76, 0.03), (after, 0.02))
    assert change.margin == pytest.approx(stats.norm.ppf(0.975) * _error(0.03, 0.02))
    assert change.is_beyond is is_beyond
    words = f"{'beyond' if is_beyond else 'within'} ± 0.0361"
    assert printed(view.metrics([change], "metrics"))[1][-1] == words
    table = comparison._metrics([change])
    state = table.rows[0][-1]
    assert state.text == ("beyond" if is_beyond else "within: maybe chance")


def _error(*halves):
    """The standard error of a difference, of the half widths of two intervals."""
    variances = [(half / stats.norm.ppf(0.975)) ** 2 for half in halves]
    return sum(variances) ** 0.5


def test_a_model_compared_with_the_other_run_on_the_same_rows_has_its_margin():
    first = Run("a", "p", 0.0, 1.0, "blessed", metrics={"auc": 0.76})
    ours = {"auc": 0.77, "recall@0.3": 0.5}
    second = dataclasses.replace(first, run_id="b", metrics=ours, summary=SUMMARY)
    first = dataclasses.replace(first, metrics={"auc": 0.76, "recall@0.3": 0.5})
    auc, recall = compared._metrics(first, second)
    assert auc.margin == pytest.approx(0.006)
    assert auc.is_beyond is True
    assert recall.is_beyond is None


def test_intervals_of_two_levels_are_not_compared():
    change = compared_runs((0.76, 0.03), (0.9, 0.02), level=0.9)
    assert change.margin is change.is_beyond is None
    table = comparison._metrics([change])
    assert [column.key for column in table.columns][-1] == "better"
    assert len(printed(view.metrics([change], "metrics"))[0]) == 4


def sliced(value, half, level=0.95, **others):
    """A summary with two slices, the first with the interval of its metric."""
    ends = {"metrics": {"auc": [value - half, value + half]}, "changes": {}}
    slices = [
        {"value": "OO", "metrics": {"auc": value}, "intervals": ends},
        {"value": "AA", "metrics": {"auc": 0.9}},
    ]
    return {
        **SUMMARY,
        "intervals": {"confidence_level": level, "metrics": {}, "changes": {}},
        "bounds": [{"metric": "auc", "slice": "overall", "ok": True}],
        "slices": [{"feature": "carrier", "examples": 60, **x} for x in slices],
        **others,
    }


def test_tables_of_slices_have_the_margins_of_those_with_intervals():
    heading, worst, other = printed(report._worst_slices(sliced(0.6, 0.05)))
    assert heading == ["worst slices", "model", "± (95 %)", "examples"]
    assert worst[1:] == ["carrier=OO", "0.6000", "0.0500", "60"]
    assert other == ["carrier=AA", "0.9000", "-", "60"]
    table = outcome._all_slices(sliced(0.6, 0.05))
    titles = [column.title for column in table.columns]
    assert titles == ["slice", "examples", "auc", "± (95 %)", "recall@0.3", "± (95 %)"]
    first, second = (row[2:4] for row in table.rows)
    assert first == [0.6, pytest.approx(0.05)] and second == [0.9, None]


def slices_of(before, after):
    """The changes of slices between two runs, by their summaries."""
    run = Run("r", "p", 0.0, 1.0, "blessed", metrics={"auc": 0.75, "recall@0.3": 0.5})
    runs = (dataclasses.replace(run, summary=each) for each in (before, after))
    return compared._slices(*runs)


@pytest.mark.parametrize(("after", "word"), [(0.7, "beyond"), (0.65, "within")])
def test_changes_of_slices_are_beyond_the_margin_or_not(after, word):
    (change,) = slices_of(sliced(0.6, 0.05), sliced(after, 0.06))
    assert change.slice == "carrier=OO"
    assert change.margin == pytest.approx((0.05**2 + 0.06**2) ** 0.5)
    _, row = printed(view.metrics([change], "slices"))
    assert row[-1] == f"{word} ± 0.0781"
    table = comparison._slices([change])
    assert table.columns[-2].key == "chance"
    assert table.rows[0][-2].text.startswith(word)
    other = slices_of(sliced(0.6, 0.05), sliced(after, 0.06, level=0.9))
    assert [each.margin for each in other] == [None] * len(other)


def test_slices_of_a_model_compared_on_the_same_rows_have_the_margin_of_the_pairs():
    after = sliced(0.62, 0.06, baseline={"auc": 0.75, "recall@0.3": 0.5})
    after["slices"][0]["intervals"]["changes"] = {"auc": [0.01, 0.03]}
    (change,) = slices_of(sliced(0.6, 0.05), after)
    assert change.margin == pytest.approx(0.01)
    assert change.is_beyond is True
