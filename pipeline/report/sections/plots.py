"""The section on a model's answers: curves, calibration, confusion."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import node_ids
from strategos.components.evaluation.plots import FILE
from strategos.pipeline.report import charts
from strategos.pipeline.report.document import (
    Block,
    Cell,
    Chart,
    Column,
    Paragraph,
    Raw,
    Section,
    Table,
    header,
)
from strategos.pipeline.report.record import Record
from strategos.pipeline.report.sections import errors
from strategos.pipeline.report.sections.errors import NAMES, whole

_SERIES = 6  # classes with a curve each
_CLASSES = 12  # of a drawn confusion matrix
_CONFUSED = 30  # pairs of classes in the table of a larger one
_RATES = ("true positives", "false positives", "false negatives", "true negatives")


def answers(record: Record) -> Section | None:
    """Plots of the model's answers; None if the evaluation has none."""
    plots = record.json(node_ids.EVALUATOR, "ModelEvaluation", FILE) or {}
    blocks: list[Block] = []
    for number, (head, own) in enumerate((plots.get("heads") or {"": plots}).items()):
        if "candidate" in (own.get("models") or {}):
            named = (_of_head(each, head, number) for each in _blocks(own))
            blocks += named if head else _blocks(own)
    return Section("answers", "Answers", blocks) if blocks else None


def _blocks(plots: Mapping[str, Any]) -> list[Block]:
    models = plots["models"]
    if plots["task"] == "regression":
        return errors.blocks(models)
    if plots["task"] == "reconstruction":
        return errors.of_rows(models)
    charts_of = [*_curves(models), _calibration(models, plots["task"])]
    return [*_confusions(models), *charts_of]


def _of_head(block: Block, head: str, number: int) -> Block:
    """The block with the head in its title."""
    if isinstance(block, Chart):
        table = dataclasses.replace(block.table, title=f"{head}: {block.title}")
        return dataclasses.replace(block, id=f"head-{number}-{block.id}", table=table)
    if isinstance(block, Table):
        return dataclasses.replace(block, title=f"{head}: {block.title}")
    return block


def _confusions(models: Mapping[str, Any]) -> Iterator[Block]:
    candidate = models["candidate"]
    if matrix := candidate.get("confusion"):
        yield _matrix(matrix, candidate["classes"])
    elif "confusion" in candidate["scores"][0]:
        yield _at_one_half(models)
    else:
        yield Paragraph("There are too many classes for a confusion matrix.")


def _at_one_half(models: Mapping[str, Any]) -> Table:
    columns = [Column("of", "of"), *(Column(each, each, True) for each in _RATES)]
    rows: list[list[Cell]] = []
    for name, score in _series(models, len(models["candidate"]["scores"])):
        (tn, fp), (fn, tp) = score["confusion"]
        rows.append([name, *map(whole, (tp, fp, fn, tn))])
    return Table("Answers at threshold 0.5", columns, rows, folded=len(rows) > 12)


def _matrix(matrix: Sequence[Sequence[float]], classes: Sequence[str]) -> Block:
    if len(classes) > _CLASSES:
        return _most_confused(matrix, classes)
    columns = header("label | predicted | rows# | share#: share of the label")
    rows: list[list[Cell]] = []
    for label, line in zip(classes, matrix, strict=True):
        for predicted, count in zip(classes, line, strict=True):
            share = count / sum(line) if sum(line) else None
            names = Raw(label, "class"), Raw(predicted, "class")
            rows.append([*names, whole(count), share])
    return Chart(
        "confusion",
        charts.squares("predicted", "label", "rows", "share", len(classes)),
        Table("Predicted classes by label", columns, rows),
        "A row for each label; the stronger a square, the larger its share of the row.",
    )


def _most_confused(matrix: Sequence[Sequence[float]], classes: Sequence[str]) -> Table:
    pairs = [
        (count, label, predicted)
        for label, line in zip(classes, matrix, strict=True)
        for predicted, count in zip(classes, line, strict=True)
        if label != predicted and count
    ]
    pairs.sort(key=lambda pair: -pair[0])
    columns = header("label | predicted | rows#")
    rows = [
        (Raw(label, "class"), Raw(predicted, "class"), whole(count))
        for count, label, predicted in pairs[:_CONFUSED]
    ]
    left_out = max(0, len(pairs) - _CONFUSED)
    return Table("Classes that are confused most", columns, rows, left_out)


def _curves(models: Mapping[str, Any]) -> Iterator[Chart]:
    kinds = {
        "roc": ("ROC curve", "false-positive rate", "true-positive rate"),
        "precision_recall": ("Precision and recall", "recall", "precision"),
    }
    captions = {
        "roc": "At falling thresholds; the dashed line is an answer by chance.",
        "precision_recall": "At falling thresholds, from the left to the right.",
    }
    for key, (title, *axes) in kinds.items():
        rows = [
            (name, *point)
            for name, score in _series(models, _SERIES)
            for point in score.get(key) or ()
        ]
        if not rows:
            continue
        columns = header(f"of | x#: {axes[0]} | y#: {axes[1]} | threshold#")
        spec = charts.unit_square("threshold", titles=axes, diagonal=key == "roc")
        table = Table(title, columns, rows)
        yield Chart(key.replace("_", "-"), spec, table, captions[key])


def _calibration(models: Mapping[str, Any], task: str) -> Chart:
    axes = "mean score", "share of positive rows"
    caption = "Groups of about equally many rows by score; on the line, scores are true"
    if task == "multi_class":
        axes = "mean probability of the answer", "share of right answers"
        caption = "Groups of about equally many rows; on the line, probabilities hold"
    columns = header(f"of | x#: {axes[0]} | y#: {axes[1]} | rows#")
    rows = [
        (name, group["predicted"], group["observed"], whole(group["rows"]))
        for name, score in _series(models, _SERIES)
        for group in score["calibration"]
    ]
    spec = charts.unit_square("x", titles=axes, diagonal=True, points=True)
    return Chart(
        "calibration", spec, Table("Calibration", columns, rows), f"{caption}."
    )


def _series(
    models: Mapping[str, Any], most: int
) -> Iterator[tuple[Cell, Mapping[str, Any]]]:
    """The scores to show with their names: of both models, or of a model's classes."""
    scores = models["candidate"]["scores"]
    if len(scores) > 1:
        for score in scores[:most]:
            yield Raw(score["class"], "class"), score
        return
    for key, name in NAMES.items():
        if key in models:
            yield name, models[key]["scores"][0]
