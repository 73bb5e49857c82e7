"""The interface of a gate: checks on the statistics of a new span, before it is used.

Usage, in a package with the entry point `holidays = "package.module:Holidays"` in the
group `strategos.gates`, for `gates.plugins: {holidays: {at_most: 0.1}}`:

    class Holidays(Gate):
        settings = HolidaySettings

        def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
            share = holidays_in(span.found)
            ok, bound = share <= settings["at_most"], settings["at_most"]
            yield Check("holidays", span.number, ok, "", share, "at_most", bound)
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from strategos.components.plugins import Registry

if TYPE_CHECKING:
    from pydantic import BaseModel

    from strategos.components.span_validator.measure import Statistics


@dataclasses.dataclass(frozen=True)
class Check:
    """One figure of a span against its bound.

    Attributes:
      gate: `schema`, or a name in `GATES`.
      span: The span's number.
      ok: Whether the bound holds.
      feature: The column; "" for the span as a whole.
      received: The figure; None if the check has none or compares too few rows.
      bound: `at_least`, `at_most` or `may_rise`; "" without a figure.
      required: The bound's number.
      note: The compared data, or the problem.
    """

    gate: str
    span: int
    ok: bool
    feature: str = ""
    received: float | None = None
    bound: str = ""
    required: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Usual:
    """Statistics of earlier, accepted spans.

    Attributes:
      numbers: The numbers of the spans, ascending.
      statistics: The statistics of each span.
    """

    numbers: Sequence[int]
    statistics: Sequence[Statistics]

    @property
    def last(self) -> Statistics:
        """The statistics of the newest of these spans."""
        return self.statistics[-1]


@dataclasses.dataclass(frozen=True)
class Compared:
    """A span, and the statistics to compare it with.

    Attributes:
      number: The span's number.
      found: The span's statistics; `measure` reads them.
      usual: Accepted spans before this span; empty for a first span.
      serving: Statistics of rows sent to the model in production; None without
        `gates.skew`.
    """

    number: int
    found: Statistics
    usual: Usual
    serving: Statistics | None = None


class Gate(abc.ABC):
    """One comparison of a new span; a check that fails stops the run with exit code 3.

    Attributes:
      settings: The pydantic model of the gate's settings; None for no settings.
    """

    settings: ClassVar[type[BaseModel] | None] = None

    @abc.abstractmethod
    def judge(self, span: Compared, settings: Any) -> Iterator[Check]:
        """Yields every check of a span.

        Args:
          span: The span, and the statistics to compare it with.
          settings: The gate's settings in `gates`; None if it has none.
        """


GATES: Registry[Gate] = Registry(
    "strategos.gates",
    Gate,
    {
        **{
            name: f"strategos.components.span_validator.checks:{name.title()}"
            for name in ("rows", "types", "missing", "drift", "skew")
        },
        "features": "strategos.components.span_validator.feature_bounds:Features",
    },
)
"""Gates by name; a plug-in's is a key of `gates.plugins`."""
