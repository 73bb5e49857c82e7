"""Charts of a model's answers, by value."""

from __future__ import annotations

import json

import numpy as np
import pytest

from strategos.components.evaluation.plots import FILE, counts, errors, points
from strategos.components.evaluation.scored import Scored
from strategos.components.evaluation.sums import Sums
from strategos.pipeline.history.lineage import LineageStep, MadeArtifact
from strategos.pipeline.history.runs import Run
from strategos.pipeline.report import document, page
from strategos.pipeline.report.document import Chart, Table
from strategos.pipeline.report.record import Record
from strategos.pipeline.report.sections import plots

LABEL = np.array([1.0, 1.0, 0.0, 0.0])
SCORE = np.array([[0.9], [0.3], [0.6], [0.1]])


@pytest.fixture
def section(tmp_path):
    """Makes the section of an evaluation: `section(task, candidate=counts, …)`."""

    def section(task, heads=None, **models):
        scored = Scored(Sums((), ""), plots=models)
        for head, own in (heads or {}).items():
            scored.heads[head] = Scored(Sums((), ""), plots=own)
        text = json.dumps(points.document(scored, task))
        (tmp_path / FILE).write_text(text)
        made = MadeArtifact(7, "evaluation", "ModelEvaluation", str(tmp_path), {})
        step = LineageStep("Evaluator", 1, "r", False, 0.0, 1.0, {}, (made,), ())
        run = Run(
            run_id="r", pipeline="p", started=0.0, finished=1.0, outcome="blessed"
        )
        return plots.answers(Record(run, (step,), None))

    return section


def tables(section):
    found = [x.table if isinstance(x, Chart) else x for x in section.blocks]
    return {x.title: page.records(x) for x in found if isinstance(x, Table)}


def test_a_binary_model_stands_beside_the_one_in_production(section):
    ours = counts.of("binary", LABEL, SCORE)
    theirs = counts.of("binary", LABEL, 1 - SCORE)
    found = tables(section("binary", candidate=ours, baseline=theirs))
    rates = ("true positives", "false positives", "false negatives", "true negatives")
    assert found["Answers at threshold 0.5"] == [
        {"of": name, **dict.fromkeys(rates, 1)} for name in ("model", "in production")
    ]
    roc = [(x["x"], x["y"]) for x in found["ROC curve"] if x["of"] == "model"]
    assert roc == [(0, 0), (0, 0.5), (0.5, 0.5), (0.5, 1), (1, 1)]
    recall = [
        (x["x"], x["y"]) for x in found["Precision and recall"] if x["of"] == "model"
    ]
    assert recall == [(0.5, 1), (0.5, 0.5), (1, pytest.approx(2 / 3)), (1, 0.5)]
    groups = [x for x in found["Calibration"] if x["of"] == "model"]
    assert [x["y"] for x in groups] == [0, 1, 0, 1]
    assert [x["x"] for x in groups] == pytest.approx([0.1, 0.3, 0.6, 0.9])


def test_classes_are_drawn_as_squares(section):
    label, answer = np.array([0.0, 1.0, 1.0]), np.eye(2)[[0, 0, 1]]
    found = section("multi_class", candidate=counts.of("multi_class", label, answer))
    (squares, _) = (x for x in found.blocks if isinstance(x, Chart))
    rows = page.records(squares.table)
    assert [(x["label"], x["predicted"], x["rows"], x["share"]) for x in rows] == [
        *(("0", "0", 1, 1), ("0", "1", 0, 0)),
        *(("1", "0", 1, 0.5), ("1", "1", 1, 0.5)),
    ]


def test_of_many_classes_the_most_confused_are_listed(section):
    width = 40
    label = np.repeat(np.arange(width), 3).astype(np.float64)
    answer = np.eye(width)[np.where(np.arange(3 * width) < 2, 5, label.astype(int))]
    found = section("multi_class", candidate=counts.of("multi_class", label, answer))
    rows = tables(found)["Classes that are confused most"]
    assert rows == [{"label": "0", "predicted": "5", "rows": 2}]


def test_several_classes_have_a_curve_each_and_their_names_can_be_left_out(section):
    label, answer = np.stack([LABEL, 1 - LABEL], 1), np.hstack([SCORE, SCORE])
    names = ["<b>rain", "wind"]
    found = section(
        "multi_label", candidate=counts.of("multi_label", label, answer, None, names)
    )
    assert {x["of"] for x in tables(found)["ROC curve"]} == set(names)
    whole = document.Document("t", "s", document.State("blessed"), [found])
    shown = json.dumps(page.specifications(document.redacted(whole)))
    assert "rain" not in shown
    assert "class 1" in shown


def test_a_regression_stands_beside_the_one_in_production(section):
    label = np.arange(400.0)
    ours = counts.of("regression", label, label[:, None] + 2)
    theirs = counts.of("regression", label, label[:, None] * 0 + 7)
    found = section("regression", candidate=ours, baseline=theirs)
    shown = tables(found)
    quantiles = shown["Quantiles of the error (prediction minus label)"]
    assert quantiles[0] == {"of": "model", **dict.fromkeys([*quantiles[0]][1:], 2)}
    assert quantiles[1] == {
        "of": "in production",
        **{f"q{x:g}": 7 - (400 - 400 * x) for x in errors.SHARES},
    }
    of = [x for x in shown["Labels by prediction"] if x["of"] == "model"]
    assert [(x["x"], x["y"]) for x in of] == [
        (11.5 + first, 9.5 + first) for first in range(0, 400, 20)
    ]
    (constant,) = (
        x for x in shown["Errors by prediction"] if x["of"] == "in production"
    )
    assert constant["y"] == 7 - 199.5
    assert constant["deviation"] == pytest.approx(label.std())
    for title in ("", ", in production"):
        rows = shown[f"Predictions and labels{title}"]
        assert 392 <= sum(x["rows"] for x in rows) <= 400
        assert {x["x2"] - x["x"] for x in rows} == {x["y2"] - x["y"] for x in rows}
    ids = [x.id for x in found.blocks if isinstance(x, Chart)]
    assert len(ids) == len(set(ids)) == 4


def test_reconstructed_rows_have_quantiles_of_their_errors(section):
    features = np.zeros((400, 2))
    answer = np.repeat(2.0 ** (np.arange(400) // 100), 2).reshape(400, 2)
    ours, theirs = (
        counts.of("reconstruction", features, x) for x in (answer, features)
    )
    shown = tables(section("reconstruction", candidate=ours, baseline=theirs))
    first, second = shown["Quantiles of `reconstruction_error` of a row"]
    assert [*first.values()] == ["model", 1, 1, 1, 4, 16, 64, 64]
    assert second["of"] == "in production" and max([*second.values()][1:]) < 1e-29


def test_a_redacted_regression_shows_no_label_of_a_single_row(section):
    def shown(label, predicted):
        found = section(
            "regression", candidate=counts.of("regression", label, predicted[:, None])
        )
        whole = document.Document("t", "s", document.State("blessed"), [found])
        (redacted,) = document.redacted(whole).sections
        return tables(redacted)

    label = np.arange(100.0) + 0.125
    (few,) = shown(label, label + np.arange(100)).values()
    assert few == [{"of": "model", **dict.fromkeys([*few[0]][1:], None)}]
    many = shown(np.repeat(label, 10), np.repeat(label + np.arange(100) // 50, 10))
    quantiles, labels, _ = many.values()
    assert list(quantiles[0].values())[1:] == [0, 0, 0, 0, 1, 1, 1]
    assert min(row["rows"] for row in labels) >= 10


def test_each_head_has_its_own_charts(section):
    ours = {"candidate": counts.of("binary", LABEL, SCORE)}
    theirs = {"candidate": counts.of("binary", 1 - LABEL, SCORE)}
    tasks = {"rain": "binary", "delay": "regression", "wind": "binary"}
    found = section(tasks, {"rain": ours, "delay": {}, "wind": theirs})
    alone = tables(section("binary", **theirs))
    assert tables(found)["wind: ROC curve"] == alone["ROC curve"]
    assert "rain: Answers at threshold 0.5" in tables(found)
    ids = [x.id for x in found.blocks if isinstance(x, Chart)]
    assert len(ids) == len(set(ids)) == 6


def test_an_evaluation_without_plots_has_no_section(section, tmp_path):
    assert section("regression") is None
    nothing = counts.of("regression", LABEL[:0], SCORE[:0])
    assert section("regression", candidate=nothing) is None
    (tmp_path / FILE).unlink()
    run = Run(run_id="r", pipeline="p", started=0.0, finished=1.0, outcome="blessed")
    assert plots.answers(Record(run, (), None)) is None
