"""Intervals of a training in steps."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import StringConstraints

from strategos.pipeline.config.introspect import Allowed

EverySteps: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9][0-9]* steps?$"),
    Allowed("a number of steps such as 500 steps"),
]
"""A number of steps, e.g. `500 steps`."""
