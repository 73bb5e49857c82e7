"""Which workers of a gang train (`trainer.distribution.min_workers`)."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from strategos.components import events
from strategos.components.trainer.gang.watchdog import NewAttemptError, log
from strategos.components.wording import counted, listed

_LOOK_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Members:
    """The workers of a gang, those that are lost, and when they are tried again.

    A worker is lost if it fails twice in a row without progress in between: a restart
    has not helped. The others go on. After the next checkpoint the lost worker is tried
    again. Where this fails too, the next try comes after twice as many checkpoints.

    Attributes:
      names: Names of all workers of the whole gang.
      least: Number of workers below which the gang does not go on.
      needed: Numbers of the workers that are never lost.
      lost: Numbers of the lost workers, from 0.
      suspect: Number of the worker that failed last, without progress since.
      tried: Numbers of formerly lost workers that have made no progress since.
      patience: Checkpoints until the lost workers are tried again.
    """

    names: tuple[str, ...]
    least: int
    needed: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    suspect: int | None = None
    tried: frozenset[int] = frozenset()
    patience: int = 1

    @property
    def size(self) -> int:
        """Number of workers that train."""
        return len(self.names) - len(self.lost)

    @property
    def lost_names(self) -> list[str]:
        """Names of the lost workers."""
        return [self.names[number] for number in sorted(self.lost)]

    def after_failure(self, name: str, *, progressed: bool) -> Members:
        """The members of the next attempt.

        Args:
          name: Name of the task that failed first. If it is not one of these workers,
            or several could be meant, a worker that is being tried is the cause.
          progressed: Whether the attempt got further than those before.
        """
        culprit = self.names.index(name) if name in self.names else None
        if progressed:
            return dataclasses.replace(
                self, suspect=culprit, tried=frozenset(), patience=1
            )
        gone = frozenset[int]()
        if self.tried and (culprit is None or culprit in self.tried):
            gone = self.tried if culprit is None else frozenset({culprit})
        elif culprit is not None and culprit == self.suspect:
            gone = frozenset({culprit})
        if not gone or not self._can_lose(gone):
            return dataclasses.replace(self, suspect=culprit)
        return dataclasses.replace(
            self,
            lost=self.lost | gone,
            suspect=None,
            tried=self.tried - gone,
            patience=2 * self.patience if self.tried else self.patience,
        )

    def can_lose(self, names: Collection[str]) -> bool:
        """Whether the gang may go on without these workers, too."""
        return self._can_lose(frozenset(map(self.names.index, names)))

    def _can_lose(self, gone: frozenset[int]) -> bool:
        left = len(self.names) - len(self.lost | gone)
        return left >= self.least and not gone & self.needed

    def without(self, names: Collection[str]) -> Members:
        """The members of an attempt without workers that are away."""
        away = frozenset(map(self.names.index, names))
        return dataclasses.replace(
            self,
            lost=self.lost | away,
            suspect=None,
            tried=self.tried - away,
            patience=2 * self.patience if self.tried & away else self.patience,
        )

    def with_back(self, names: Collection[str]) -> Members:
        """The members of an attempt that tries some of the lost workers again."""
        back = frozenset(map(self.names.index, names))
        return dataclasses.replace(
            self, lost=self.lost - back, tried=self.tried | back, suspect=None
        )


class CheckpointCount:
    """Counts the checkpoints of a training from outside of its processes.

    Args:
      newest: Returns the step of the newest complete checkpoint; 0 without one.
      clock: Monotonic time in seconds.

    Attributes:
      step: The step of the newest checkpoint that was seen.
      fresh: Whether the last call of `new` has found another one.
    """

    def __init__(
        self, newest: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ):
        self._newest, self._clock = newest, clock
        self.step, self._new, self._looked = 0, 0, -math.inf
        self.fresh = False

    def begin(self) -> None:
        """Counts from here on."""
        self.step, self._new, self._looked = self._newest(), 0, self._clock()
        self.fresh = False

    def new(self) -> int:
        """Number of checkpoints since `begin`; looks once a second at most."""
        self.fresh = False
        if self._clock() - self._looked >= _LOOK_SECONDS:
            self._looked, step = self._clock(), self._newest()
            self.fresh = step > self.step
            self._new += self.fresh
            self.step = max(self.step, step)
        return self._new


def announce(before: Members, now: Members, how: str) -> None:
    """Reports in the log and in the live view that the size of a gang changes.

    Args:
      before: The members of the last attempt.
      now: Those of the next one.
      how: Why workers are lost, or where the gang goes on with workers that return.
    """
    lost, back = now.lost - before.lost, before.lost - now.lost
    names = listed([now.names[number] for number in sorted(lost or back)])
    number = f"{now.size} of {counted(len(now.names), 'worker')}"
    one = len(lost or back) == 1
    if lost:
        text = f"{names} {'is' if one else 'are'} lost ({how}): {number} go on"
        text += " from the last checkpoint"
    else:
        text = f"{names} {'returns' if one else 'return'}: {number} go on from {how}"
    log(f"warning: {text}")
    events.emit("warning", message=text)


def recorded(facts: Mapping[str, Any], sizes: Sequence[int]) -> dict[str, Any]:
    """The facts of a training, of which the reason names all sizes of its gang.

    Workers, replicas and examples per second in the facts are those of its end.

    Args:
      facts: The facts of the training.
      sizes: Workers of each attempt, in order.
    """
    changes = [n for i, n in enumerate(sizes) if not i or n != sizes[i - 1]]
    if len(changes) == 1 or "reason" not in facts:
        return dict(facts)
    text = f"{facts['reason']}; trained by {listed(list(map(str, changes)))} workers"
    return {**facts, "reason": f"{text} in turn"}


def returning() -> NewAttemptError:
    """Ends an attempt at a checkpoint, for the lost workers to take part again."""
    return NewAttemptError("lost workers are taken in")
