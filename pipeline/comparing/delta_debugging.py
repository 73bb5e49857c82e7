"""Delta debugging: which of many changes together make something fail.

Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
IEEE Transactions on Software Engineering 28(2), 2002, the algorithm `ddmin`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

C = TypeVar("C")
_Parts: TypeAlias = list[tuple[C, ...]]


class NoMoreTriesError(Exception):
    """`fails` may not try another set of changes."""


@dataclasses.dataclass(frozen=True)
class Found(Generic[C]):
    """The result of a search.

    Attributes:
      causes: Sets of changes, in the order in which they were found: each fails by
        itself, and no longer without any one of its changes.
      suspects: If tries ran out: the smallest set that is known to contain a further
        cause, or that was not tried yet. Empty if the search is complete.
      rest: The changes of no cause.
    """

    causes: tuple[tuple[C, ...], ...]
    suspects: tuple[C, ...]
    rest: tuple[C, ...]


def search(
    groups: Sequence[Sequence[C]], fails: Callable[[tuple[C, ...]], bool]
) -> Found[C]:
    """Finds the causes of a failure: groups are tried one by one, then halves.

    After a cause is found, the changes of no cause are searched again, until all of
    them together no longer fail: a second cause is found even if the first hides it.

    Args:
      groups: The changes, similar ones in one group.
      fails: Whether a set of changes fails, in the order of `groups`. False if that
        cannot be known. Called repeatedly with equal sets. It may raise
        `NoMoreTriesError`.
    """
    return _Search(fails).run([tuple(each) for each in groups if each])


class _Search(Generic[C]):
    def __init__(self, fails: Callable[[tuple[C, ...]], bool]) -> None:
        self._fails = fails
        self._suspects: tuple[C, ...] = ()

    def run(self, parts: _Parts[C]) -> Found[C]:
        causes: list[tuple[C, ...]] = []
        try:
            while parts:
                self._suspects = _joined(parts)
                if not self._fails(self._suspects):
                    break
                cause = self._minimal(parts)
                causes.append(cause)
                parts = [tuple(x for x in part if x not in cause) for part in parts]
                parts = [part for part in parts if part]
            self._suspects = ()
        except NoMoreTriesError:
            pass
        return Found(tuple(causes), self._suspects, _joined(parts))

    def _minimal(self, parts: _Parts[C]) -> tuple[C, ...]:
        """A failing subset, of which no change can be left out."""
        if len(parts) == 1:
            parts = _halves(parts[0])
        while len(parts) > 1:
            self._suspects = _joined(parts)
            if (part := self._failing_part(parts)) is not None:
                parts = _halves(part)
            elif (fewer := self._failing_complement(parts)) is not None:
                parts = fewer
            elif all(len(part) == 1 for part in parts):
                break
            else:
                parts = [half for part in parts for half in _halves(part)]
        return _joined(parts)

    def _failing_part(self, parts: _Parts[C]) -> tuple[C, ...] | None:
        return next((part for part in parts if self._fails(part)), None)

    def _failing_complement(self, parts: _Parts[C]) -> _Parts[C] | None:
        if len(parts) == 2:  # each is the other's complement
            return None
        complements = (parts[:n] + parts[n + 1 :] for n in range(len(parts)))
        return next((x for x in complements if self._fails(_joined(x))), None)


def _halves(part: tuple[C, ...]) -> _Parts[C]:
    middle = (len(part) + 1) // 2
    return [half for half in (part[:middle], part[middle:]) if half]


def _joined(parts: _Parts[C]) -> tuple[C, ...]:
    return tuple(itertools.chain.from_iterable(parts))
