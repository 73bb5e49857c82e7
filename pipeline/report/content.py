"""The report of a run as a document: which sections it has, in which order."""

from __future__ import annotations

from strategos.components.wording import duration
from strategos.pipeline.made_from.compared import Comparison
from strategos.pipeline.report.document import Document
from strategos.pipeline.report.record import Record
from strategos.pipeline.report.sections import (
    comparison,
    data,
    outcome,
    plots,
    provenance,
    training,
)
from strategos.pipeline.root.boosted_trees import Trees
from strategos.pipeline.view import terminal


def document(record: Record, compared: Comparison | None = None) -> Document:
    """The report of a run; sections without content are left out.

    Args:
      record: The run, which may still be running, or have failed in its first node.
      compared: Another run and this one, to report the changes.
    """
    run = record.run
    sections = [
        outcome.verdict(run),
        outcome.metrics(run, _trees(record)),
        *(comparison.compared(compared) if compared else ()),
        plots.answers(record),
        outcome.slices(run),
        training.training(record),
        data.data(record),
        outcome.graph(run),
        provenance.lineage(record),
        provenance.settings(record),
        provenance.environment(record),
        outcome.warnings(run),
    ]
    took = "" if run.duration is None else f", {duration(run.duration)}"
    return Document(
        title=run.pipeline,
        subtitle=f"Run {run.run_id}, {terminal.moment(run.started)}{took}",
        verdict=outcome.state(run.outcome),
        sections=[each for each in sections if each],
    )


def _trees(record: Record) -> Trees | None:
    """The metric of trees on the rows of a run; None if the model differs from theirs.

    They know no weights of rows, and predict the label that they were trained for.
    """
    settings = record.made_from.settings if record.made_from else {}
    same = record.trees and settings.get("label") == record.trees.label
    return record.trees if same and not settings.get("weight") else None
