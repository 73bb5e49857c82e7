"""A fold in threads of this process, which go on in processes if it takes long.

Arrow, ISA-L and NumPy release Python's lock in much of their work, and threads share
loaded data. But Python code of one thread waits for the others, the longer the more
threads there are. So each thread but one gets a helper, if much is to be done.
"""

from __future__ import annotations

import collections
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Generic, TypeVar

from strategos.components.shards import progress
from strategos.components.shards.helpers import Helper

Shard = TypeVar("Shard")
Result = TypeVar("Result")

_AHEAD = 2  # shards for each thread that are begun before the oldest one is merged
_MANY = 8  # shards for each thread: helpers pay at once
# From the end of the first shard on: its thread has loaded the threads' shared data.
_PACE_SECONDS = 0.2
_LEAST_SECONDS = 2.0  # of work that is left, by the pace; helpers load all that again


def fold(
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    merge: Callable[[Result, Result], Result],
    threads: int,
    helpers: int,
    group: int,
    paced: bool = False,
) -> Result:
    """Works on every shard and merges the results; see `fold.fold`.

    Results are merged as soon as they are next in order, so that few are held.

    Args:
      shards: At least one.
      work: Safe to call in several threads.
      merge: Merges the results of two neighbours; called in this thread.
      threads: Number of threads; 1 for this one.
      helpers: Upper bound of the number of helper processes.
      group: Number of neighbours that are merged at a time.
      paced: Whether helpers start only by the pace, not for many shards at once.

    Raises:
      Exception: Any error of `work` or `merge`, for the earliest shard.
    """
    threads = min(threads, len(shards))
    if threads == 1:
        return _merged(map(work, shards), len(shards), merge, group)
    crew = _Crew(work, len(shards), threads, min(helpers, threads - 1), paced)
    with futures.ThreadPoolExecutor(
        threads, "shards", initializer=progress.work_for, initargs=(crew.ended,)
    ) as pool:
        try:
            results = _in_order(pool, shards, crew.work, _AHEAD * threads)
            return _merged(results, len(shards), merge, group)
        finally:
            crew.end()
            pool.shutdown(wait=False, cancel_futures=True)


class _Crew(Generic[Shard, Result]):
    """The threads of a fold, and their helpers.

    Args:
      work: Called on each shard.
      shards: Number of all shards.
      workers: Number of threads.
      helpers: Upper bound of the number of helpers.
      paced: Whether helpers start only by the pace.

    Attributes:
      ended: Set when the fold has ended.
    """

    def __init__(
        self,
        work: Callable[[Shard], Result],
        shards: int,
        workers: int,
        helpers: int,
        paced: bool = False,
    ):
        self.ended = threading.Event()
        self._work, self._shards = work, shards
        self._most = helpers
        self._many = not paced and shards >= _MANY * workers
        self._paced, self._done = 0.0, 0  # when the first shard was done; how many are
        self._lock = threading.Lock()
        self._helpers: dict[int, Helper | None] = {}  # by thread; None: there is none

    def work(self, shard: Shard) -> Result:
        """Works on a shard, in this thread or by its helper."""
        helper = self._helper()
        result = helper.work(shard) if helper else self._work(shard)
        with self._lock:
            self._paced = self._paced or time.monotonic()
            self._done += 1
        return result

    def end(self) -> None:
        """Ends the work of threads that are not needed any more, and the helpers."""
        self.ended.set()
        with self._lock:
            for helper in filter(None, self._helpers.values()):
                helper.end()

    def _helper(self) -> Helper | None:
        """This thread's helper; a new one if that pays."""
        thread = threading.get_ident()
        with self._lock:
            if thread in self._helpers or not self._pays():
                return self._helpers.get(thread)
            self._helpers[thread] = None
        helper = Helper.start(self._work)  # the other threads go on meanwhile
        with self._lock:
            self._helpers[thread] = helper
            if helper and self.ended.is_set():
                helper.end()
        return helper

    def _pays(self) -> bool:
        """Whether another helper pays: it loads the threads' shared data again."""
        if self.ended.is_set() or len(self._helpers) >= self._most:
            return False
        if self._many:
            return True
        if not self._done:
            return False
        seconds = time.monotonic() - self._paced
        left = seconds / max(self._done - 1, 1) * (self._shards - self._done)
        return seconds >= _PACE_SECONDS and left >= _LEAST_SECONDS


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
    results: Iterator[Result],
    number: int,
    merge: Callable[[Result, Result], Result],
    group: int,
) -> Result:
    """The results merged by groups of neighbours, then groups of groups, until one.

    Each level holds one unfinished group, however many results there are.
    """
    while number > group:
        results, number = _groups(results, merge, group), -(-number // group)
    return functools.reduce(merge, results)


def _groups(
    results: Iterator[Result], merge: Callable[[Result, Result], Result], group: int
) -> Iterator[Result]:
    for first in results:
        others = itertools.islice(results, group - 1)
        yield functools.reduce(merge, others, first)
