"""Work on each shard of data, then merge the results: on the engine of the run.

Rows stay inside of `work`, which reads and writes whole Arrow batches; only its small
result leaves it. Results are merged in the shards' order, in a tree of a shape that
depends on the number of shards alone. So the outcome depends neither on the engine nor
on the number of workers, e.g. for sketches and float sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from strategos.components.shards.engine import Engine

Shard = TypeVar("Shard")
Result = TypeVar("Result")

_GROUP = 32  # results that are merged at a time


def fold(
    engine: Engine,
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    merge: Callable[[Result, Result], Result],
    folder: str,
    paced: bool = False,
) -> Result:
    """Works on every shard and merges the results.

    Args:
      engine: The engine of the run.
      shards: At least one. Workers of other processes get them pickled.
      work: Picklable, from an importable module, and safe to call in several threads.
        A worker may call it more than once for a shard (a retry); one call that
        succeeded counts.
      merge: Merges the results of two neighbours, the earlier first; may modify the
        earlier.
      folder: Folder that this process and the workers see, unless the engine has
        an `exchange`; for the result of a pipeline, which is removed there.
      paced: Whether helpers start only once the pace shows that they pay, however many
        shards there are: for work that takes less time than its imports and data.

    Raises:
      Exception: Any error of `work` or `merge`, for the earliest shard.
    """
    if engine.runner == "direct":
        from strategos.components.shards import threads

        workers, helpers = engine.threads, engine.helpers
        return threads.fold(shards, work, merge, workers, helpers, _GROUP, paced)
    from strategos.components.shards import pipeline

    return pipeline.fold(engine, shards, work, merge, engine.exchange or folder, _GROUP)
