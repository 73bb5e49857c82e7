"""The queries of an evaluation, in its summary and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strategos.components.wording import counted

if TYPE_CHECKING:
    from strategos.components.evaluation.scored import Scored


def of(scored: Scored, evaluator: Mapping[str, Any]) -> dict[str, Any]:
    """`queries` of a summary; {} without metrics by query.

    Args:
      scored: Results of all rows.
      evaluator: The section, with `query`.

    Returns:
      `column`, `number` of queries, and `relevant`, the number of those with a label
      above 0, which several heads do not have.
    """
    all_queries = [
        each.queries for each in scored.by_head.values() if each.queries.number
    ]
    if not all_queries:
        return {}
    queries = {"column": evaluator["query"], "number": all_queries[0].number}
    if not scored.heads:
        queries["relevant"] = all_queries[0].relevant
    return {"queries": queries}


def text(summary: Mapping[str, Any]) -> str:
    """How many queries there are; "" without metrics by query.

    Args:
      summary: The content of `summary.json`.
    """
    queries = summary.get("queries")
    if not queries:
        return ""
    number, relevant = queries["number"], queries.get("relevant", queries["number"])
    description = f"{counted(number, 'value')} of `{queries['column']}`"
    if relevant < number:
        description += f"; {number - relevant:,} without a label above 0 do not count"
    return description
