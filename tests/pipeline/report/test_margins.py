"""Confidence intervals in the terminal, the report and the comparison of runs."""

from __future__ import annotations

import io

from rich.console import Console

from strategos.pipeline.comparing import view
from strategos.pipeline.made_from import compared
from strategos.pipeline.report.sections import outcome
from strategos.pipeline.view import results

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
