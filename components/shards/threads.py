"""A fold in threads of this process.

Arrow, ISA-L and NumPy release Python's lock where most of the work is done.
"""

from __future__ import annotations

import collections
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

Shard = TypeVar("Shard")
Result = TypeVar("Result")

_AHEAD = 2  # shards for each thread that are begun before the oldest one is merged
_thread = threading.local()


class EndedError(Exception):
    """The fold that a thread works for has ended with the error of another shard."""


def fold(
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    merge: Callable[[Result, Result], Result],
    threads: int,
    group: int,
) -> Result:
    """Works on every shard and merges the results; see `fold.fold`.

    Results are merged as soon as they are next in order, so that few are held.

    Args:
      shards: At least one.
      work: Safe to call in several threads.
      merge: Of the results of two neighbours; called in this thread.
      threads: Number of threads; 1 for this one.
      group: Number of neighbours that are merged at a time.

    Raises:
      UserError: The one that `work` raised for the earliest shard.
    """
    threads = min(threads, len(shards))
    if threads == 1:
        return _merged(map(work, shards), merge, group)
    ended = threading.Event()
    with futures.ThreadPoolExecutor(
        threads, "shards", initializer=_serve, initargs=(ended,)
    ) as pool:
        try:
            results = _in_order(pool, shards, work, _AHEAD * threads)
            return _merged(results, merge, group)
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def check() -> None:
    """Ends the work of this thread if its fold has ended.

    Raises:
      EndedError: Later shards are not needed any more.
    """
    ended = getattr(_thread, "ended", None)
    if ended is not None and ended.is_set():
        raise EndedError


def _serve(ended: threading.Event) -> None:
    _thread.ended = ended


def _in_order(
    pool: futures.Executor,
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    ahead: int,
) -> Iterator[Result]:
    """Yields the results in order; at most `ahead` shards are begun or waiting."""
    todo = iter(shards)
    begun = collections.deque(
        pool.submit(work, each) for each in itertools.islice(todo, ahead)
    )
    while begun:
        yield begun.popleft().result()
        begun.extend(pool.submit(work, each) for each in itertools.islice(todo, 1))


def _merged(
    results: Iterator[Result], merge: Callable[[Result, Result], Result], group: int
) -> Result:
    """The results merged by groups of neighbours, then the groups, one at a time."""
    return functools.reduce(merge, _groups(results, merge, group))


def _groups(
    results: Iterator[Result], merge: Callable[[Result, Result], Result], group: int
) -> Iterator[Result]:
    for first in results:
        others = itertools.islice(results, group - 1)
        yield functools.reduce(merge, others, first)
