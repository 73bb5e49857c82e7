"""A fold as a Beam pipeline, on any runner.

Create(shards) | Reshuffle | ParDo(work) | GroupByKey | ParDo(merge)
"""

from __future__ import annotations

import functools
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam
from tfx.dsl.io import fileio

from strategos.components import errors

Shard = TypeVar("Shard")
Result = TypeVar("Result")


def fold(
    make_pipeline: Callable[[], beam.Pipeline],
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    merge: Callable[[Result, Result], Result],
    folder: str,
    group: int,
) -> Result:
    """Works on every shard and merges the results; see `fold.fold`.

    Args:
      make_pipeline: Makes the Beam pipeline.
      shards: At least one.
      work: Picklable, from an importable module.
      merge: Of the results of two neighbours.
      folder: Folder that this process and the workers see.
      group: Number of neighbours that are merged at a time.

    Raises:
      UserError: The one that `work` raised for the earliest shard.
    """
    if len(shards) == 1:  # nothing to spread or to merge
        return work(shards[0])
    result = os.path.join(folder, f".fold-{uuid.uuid4().hex}")
    try:
        with make_pipeline() as pipeline:
            outcomes = (
                pipeline
                | "Shards" >> beam.Create(list(enumerate(shards)), reshuffle=False)
                | "Spread" >> beam.Reshuffle()
                | "Work" >> beam.ParDo(_Work(work, result, group))
            )
            for level in range(1 if len(shards) <= group else 2):
                outcomes = (
                    outcomes
                    | f"Group{level}" >> beam.GroupByKey()
                    | f"Merge{level}" >> beam.ParDo(_Merge(merge))
                )
            _ = outcomes | "Save" >> beam.ParDo(_Save(result))
        with fileio.open(result, "rb") as file:
            error, value = pickle.loads(file.read())
    finally:
        for path in fileio.glob(f"{result}*"):
            fileio.remove(path)
    if error is not None:
        raise errors.from_json(error)
    return value


class _Work(beam.DoFn):
    """From (number, shard) to (group, (number, outcome)).

    An outcome is a pair: a `UserError` as JSON or None, and the result. After an error
    in a shard, later shards are skipped; earlier ones could have an earlier error.
    """

    def __init__(self, work: Callable[[Any], Any], result: str, group: int):
        self._work, self._result, self._group = work, result, group

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[int, Any]]:
        number, shard = element
        outcome = (None, None)
        if not self._failed_before(number):
            try:
                outcome = (None, self._work(shard))
            except errors.UserError as error:
                outcome = (error.to_json(), None)
                with fileio.open(f"{self._result}.{number:09}.failed", "wb"):
                    pass
        yield number // self._group, (number, outcome)

    def _failed_before(self, number: int) -> bool:
        failed = fileio.glob(f"{self._result}.*.failed")
        return any(int(path.split(".")[-2]) < number for path in failed)


class _Merge(beam.DoFn):
    """From (group, outcomes) to (group of groups, (group, merged outcome))."""

    def __init__(self, merge: Callable[[Any, Any], Any]):
        self._merge = merge

    def process(
        self, element: tuple[int, Iterable[tuple[int, Any]]]
    ) -> Iterator[tuple[int, Any]]:
        group, outcomes = element
        ordered = [outcome for _, outcome in sorted(outcomes, key=lambda each: each[0])]
        failed = [error for error, _ in ordered if error is not None]
        if failed:
            yield 0, (group, (failed[0], None))
        else:
            results = (result for _, result in ordered)
            yield 0, (group, (None, functools.reduce(self._merge, results)))


class _Save(beam.DoFn):
    """Writes the outcome to a file that appears when it is whole."""

    def __init__(self, result: str):
        self._result = result

    def process(self, element: tuple[int, Any]) -> Iterable[None]:
        _, (_, outcome) = element
        part = f"{self._result}.{uuid.uuid4().hex}"
        with fileio.open(part, "wb") as file:
            file.write(pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL))
        fileio.rename(part, self._result, overwrite=True)
        return ()
