"""Rejects rows on which no model can be judged."""

from __future__ import annotations

from strategos.components.errors import UserError
from strategos.components.evaluation.by_query import checks as query_checks
from strategos.components.evaluation.inputs.rows import Question
from strategos.components.evaluation.metrics import MOST_SLICES
from strategos.components.evaluation.scored import Scored


def check(scored: Scored, question: Question) -> None:
    """Rejects rows on which no model can be judged.

    Args:
      scored: Results of all rows.
      question: The question that was answered.

    Raises:
      UserError: No rows exist, their labels are all the same, the candidate has learned
        other labels, or a sliced feature has too many values.
    """
    sums = scored.sums
    if not sums.examples:
        raise UserError(
            "the eval split has no examples",
            key="data.split",
            remedy="Use more data, or give eval a larger share.",
        )
    if sums.weighted == 0:
        raise UserError(
            f"`{question.weight}` is 0 in all {sums.examples:,} examples of the eval "
            "split, so no row counts",
            key="weight",
            remedy="Check how the weight is made, or remove `weight`.",
        )
    for head, own in question.heads.items():
        check(scored.heads[head], own)
    if question.task == "multi_label" and not sums.labels_vary():
        raise UserError(
            f"each class of `{question.target.name}` is the same in the "
            f"{sums.examples:,} examples of the eval split, so a model cannot be "
            "judged on them",
            key="label",
            remedy="Check how the label is made, or use more data.",
        )
    if question.task == "binary" and not sums.labels_vary():
        word = "never" if sums.labels == 0 else "always"
        raise UserError(
            f"`{question.label}` is {word} 1 in the {sums.examples:,} examples of the "
            "eval split, so a model cannot be judged on it",
            key="label",
            remedy="Check how the label is made, or use more data.",
        )
    if question.query:
        query_checks.some_are_ranked(scored.queries, question.query)
    if scored.learned.nearly_all:
        raise scored.learned.error(question.target.name)
    for slicing in question.slices:
        if slicing.name in sums.too_many:
            raise UserError(
                "the feature has more distinct values in the eval split"
                if len(slicing.parts) == 1
                else "the features have more distinct combinations in the eval split",
                key="evaluator.slices",
                received=f"`{slicing.name}`",
                expected=f"at most {MOST_SLICES:,} slices",
                remedy="Slice by a coarser feature: a group, a region, or `bins`.",
            )
