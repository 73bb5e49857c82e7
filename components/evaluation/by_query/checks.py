"""Rejects columns, labels and rows that cannot be ranked by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.evaluation.by_query.metrics import MOST_RELEVANT
from strategos.components.evaluation.metrics import METRICS
from strategos.components.evaluation.scored import Queries
from strategos.components.wording import counted


def column(
    names: Sequence[str], evaluator: Mapping[str, Any], types: Mapping[str, tf.DType]
) -> str:
    """The feature with the queries; "" if no metric reads it.

    Args:
      names: Names of all metrics.
      evaluator: The section, with `query` if one of them reads it.
      types: Dtype by raw feature.

    Raises:
      UserError: The feature has numbers that may be rounded.
    """
    if not any(METRICS[name].by_query for name in names):
        return ""
    query: str = evaluator["query"]
    if types[query] == tf.float32:
        raise UserError(
            f"`{query}` is a number with decimals in the schema, and may be rounded",
            key="evaluator.query",
            expected="whole numbers or texts",
            remedy="Write them so before the data are read.",
        )
    return query


def label_is_relevance(label: np.ndarray, name: str) -> None:
    """Rejects labels of which no gain is made.

    Args:
      label: float64 [rows].
      name: Name of the label.

    Raises:
      UserError: A label is negative or too large.
    """
    wrong = label[~((label >= 0) & (label <= MOST_RELEVANT))]
    if len(wrong):
        raise UserError(
            key="label",
            received=f"{wrong[0]:g} as `{name}` in the eval split",
            expected=f"relevance from 0 to {MOST_RELEVANT} for metrics by query, whose "
            "gain is 2^label - 1",
            remedy="Make grades of it, such as 0 to 4, or use other metrics.",
        )


def some_are_ranked(queries: Queries, name: str) -> None:
    """Rejects queries of one row each.

    Args:
      queries: The queries of all rows.
      name: The feature.

    Raises:
      UserError: No query has two rows or more.
    """
    if not queries.ranked:
        raise UserError(
            "no query in the eval split has two rows or more, so there is nothing to "
            "rank",
            key="evaluator.query",
            received=f"`{name}`, with {counted(queries.number, 'value')}",
            remedy="Name the column that has one value in all rows of a query, and "
            "keep these rows in one split: `data.split.by: hash` with its `keys`.",
        )
