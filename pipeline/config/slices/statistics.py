"""The `statistics` section: statistics by slice, with weights, and after Transform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails

from strategos.components import node_ids
from strategos.pipeline.config.problems import raise_all, reject_at
from strategos.pipeline.config.slices import entries
from strategos.pipeline.config.types import Section


class Statistics(Section):
    """Further statistics of the data: by slice, with weights, and after Transform."""

    slices: entries.Entries = Field(
        (),
        examples=[["carrier"]],
        description="Columns to slice by, as `evaluator.slices`: statistics of each "
        "column are computed for each value, each of the bins of "
        "`{feature: distance, bins: [500, 1000]}`, or each combination of a list. An "
        "entry may have at most 500 slices.",
    )
    weighted: bool = Field(
        False,
        description="Whether counts, means and histograms are also weighted by the "
        "column that `weight` names.",
    )
    sample: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the rows that these statistics are computed of; the same "
        "data give the same sample. Schema, gates and validation always read all rows.",
    )
    transformed: bool = Field(
        False,
        description="Whether statistics of the features that `preprocessing_fn` makes "
        "are computed.",
    )

    @field_validator("slices")
    @classmethod
    def _apart(cls, slices: tuple[Any, ...]) -> tuple[Any, ...]:
        if errors := list(entries.conflicts(slices, None)):
            raise_all(errors)
        return slices

    def _problems(self) -> Iterator[InitErrorDetails]:
        if not self.nodes:
            yield reject_at(
                ("sample",) if self.sample < 1 else (),
                "has no effect without `slices`, `weighted` or `transformed`",
                remedy="Set one of them, or remove the section `statistics`.",
            )

    @property
    def nodes(self) -> set[str]:
        """The nodes that the section adds to the pipeline."""
        added = set()
        if self.slices or self.weighted:
            added.add(node_ids.DETAILED_STATISTICS)
        if self.transformed:
            added.add(node_ids.TRANSFORMED_STATISTICS)
        return added

    def request(self, weight: str | None, *, sliced: bool) -> dict[str, Any]:
        """The settings of a node, as `Request.of` reads them.

        Args:
          weight: The column that weights the rows; None for none.
          sliced: Whether the node computes slices.
        """
        return {
            "slices": self.slices if sliced else (),
            "weight": weight or "" if self.weighted else "",
            "sample": self.sample,
        }


def _has_weights(section: Statistics | None, info: ValidationInfo) -> Statistics | None:
    """Rejects weighted statistics of rows that have no weight."""
    if section and section.weighted and not info.data.get("weight", True):
        message = "the rows have no weight"
        remedy = "Set `weight` to a column, or remove `weighted`."
        raise_all([reject_at(("weighted",), message, remedy=remedy)])
    return section


MaybeStatistics = Annotated[
    Statistics | None,
    AfterValidator(_has_weights),
    Field(
        description="Further statistics of the data: by slice, with weights, and after "
        "Transform. Without this section, there are those of all rows alone."
    ),
]
"""The section; None without it."""
