"""Answers of models that number the same classes otherwise; numpy only.

A vocabulary is ordered by frequency, so new data may exchange the numbers of classes:
class 0 of the candidate need not be class 0 of the model in production.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strategos.components.errors import required
from strategos.components.evaluation.classes.entries import all_names
from strategos.components.evaluation.inputs.models import Location, Model
from strategos.components.evaluation.inputs.numbering import Numbering
from strategos.components.evaluation.inputs.rows import Question, Rows
from strategos.components.evaluation.scored import Scored
from strategos.components.wording import choices

_OF_CLASSES = ("binary", "multi_class", "multi_label")


def numbering(
    model: Model, candidate: Model, rows: Rows, label: np.ndarray, question: Question
) -> Numbering:
    """The numbers that both models give to classes without known names.

    A label that is defined relative to the data, such as "above the median", may give
    some rows another class: then both models are judged by the candidate's.

    Args:
      model: The model.
      candidate: The model; its preprocessing has made the label.
      rows: The batch.
      label: float64 [rows, …], the label of the candidate.
      question: The label and the task.
    """
    named = [x.class_names(question.head) for x in (model, candidate)]
    if question.task not in _OF_CLASSES or all(named) or question.target.is_several:
        return Numbering()
    return rows.numbering(model, label)


def reject_moved(
    scored: Scored, question: Question, others: Sequence[Location]
) -> None:
    """Makes a model of classes without known names unusable if it numbers them apart.

    Decided by the rows of all shards: the few rows of one may all have gone from one
    bin to the next.

    Args:
      scored: Results of all rows, changed in place.
      question: The question that was answered.
      others: The models besides the candidate.
    """
    for head, own in question.by_head.items():
        part = scored.by_head[head]
        moved, part.numbering = part.numbering.moved, Numbering()
        for model in others if moved else ():
            was, now = required(moved)
            why = model.error(
                f"numbers the classes of `{own.label}` otherwise than the candidate, "
                f"such as {was:g} for {now:g}, so their answers cannot be compared. "
                "Such classes are matched by name if the label is a text, and a "
                "vocabulary or the schema has its values."
            ).message
            part.unusable.setdefault(model.name, why)
            if head:
                scored.unusable.setdefault(model.name, f"{head}: {why}")


def in_order(
    model: Model,
    candidate: Model,
    answer: np.ndarray,
    question: Question,
    names: Sequence[str],
    width: int,
) -> np.ndarray:
    """The answers of a model in the order of the candidate's classes.

    Where the Trainer has recorded no names, the order is kept.

    Args:
      model: The model that has answered.
      candidate: The model that numbers the classes.
      answer: float64 [rows, classes], probabilities; of task binary [rows, 1].
      question: The task, and the head that has answered.
      names: Names of the classes of multi_label; () if a row has one label.
      width: Number of classes that the candidate answers with.

    Returns:
      float64 [rows, classes]. Of multi_class, a class that the model does not know has
      probability 0, and those that the candidate does not know come last.

    Raises:
      UserError: The model knows other classes, of binary or multi_label.
    """
    own, wanted = (x.class_names(question.head) for x in (model, candidate))
    if names:
        own, wanted = own and all_names(own, answer.shape[1]), names
    is_same = [*own] == [*wanted] and answer.shape[1] == width
    if not own or not wanted or is_same:
        return answer
    if question.task == "multi_class":
        return _columns(answer, own, wanted, width)
    if question.task not in ("binary", "multi_label"):
        return answer
    if sorted(own) != sorted(wanted):
        raise model.error(
            f"knows the classes {choices(own)}, and the label has {choices(wanted)}."
        )
    if question.task == "binary":
        return 1 - answer
    return answer[:, [own.index(name) for name in wanted]]


def exchanged(model: Model, candidate: Model, question: Question) -> tuple[str, ...]:
    """The names of class 1 of task binary, if the two classes have changed places.

    Args:
      model: The other model.
      candidate: The model that numbers the classes.
      question: The task, and the head that has answered.

    Returns:
      The name for the candidate, and the name for the model; else ().
    """
    names = [[*x.class_names(question.head)] for x in (candidate, model)]
    if question.task != "binary" or not all(names) or names[0] == names[1]:
        return ()
    return names[0][1], names[1][1]


def _columns(
    answer: np.ndarray, own: Sequence[str], wanted: Sequence[str], width: int
) -> np.ndarray:
    """Columns of classes by name, then those without a name, then further ones."""
    count = answer.shape[1]
    unnamed = [*range(len(own), count)][: max(width - len(wanted), 0)]
    places = {name: place for place, name in enumerate(own[:count])}
    chosen = [places.get(name) for name in wanted] + unnamed
    chosen += [None] * (width - len(chosen))
    chosen += sorted({*range(count)} - {*chosen})
    absent = np.where(np.isnan(answer).any(axis=1, keepdims=True), np.nan, 0.0)
    columns = [absent[:, 0] if i is None else answer[:, i] for i in chosen]
    return np.stack(columns, axis=1)
