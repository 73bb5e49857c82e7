"""A fold as a Beam pipeline, on any runner.

Create(blocks) | ParDo(read) | Reshuffle | ParDo(work) | (GroupByKey | ParDo(merge))*

Shards travel in files: within the pipeline, a million would not fit a runner's message,
and Beam would infer the type of each.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import apache_beam as beam

from strategos.components import errors
from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, object_stores, storage
from strategos.components.shards import beam_runners
from strategos.components.shards.engine import Engine

Shard = TypeVar("Shard")
Result = TypeVar("Result")

# Names in the folder of a fold.
_BEGUN = "begun"
_FAILED = "failed"  # a folder, with a file for each shard
_RESULT = "result"
_SHARDS = "shards-{}"  # a block of them

_BLOCK = 4096  # shards in a file


def fold(
    engine: Engine,
    shards: Sequence[Shard],
    work: Callable[[Shard], Result],
    merge: Callable[[Result, Result], Result],
    folder: str,
    group: int,
) -> Result:
    """Works on every shard and merges the results; see `fold.fold`.

    Args:
      engine: The engine of the run.
      shards: At least one.
      work: Picklable, from an importable module.
      merge: Merges the results of two neighbours.
      folder: Folder that this process and the workers see; created if missing.
      group: Number of neighbours that are merged at a time.

    Raises:
      Exception: Any error of `work` or `merge`, for the earliest shard.
    """
    if len(shards) == 1:  # nothing to spread or to merge
        return work(shards[0])
    own = f"{folder}/.fold-{uuid.uuid4().hex}"
    try:
        blocks = _write_blocks(shards, own)
        storage.write(f"{own}/{_BEGUN}", "")
        with beam_runners.make_pipeline(engine) as pipeline:
            outcomes = (
                pipeline
                | "Blocks" >> beam.Create(range(blocks), reshuffle=False)
                | "Shards" >> beam.ParDo(_Read(folder, own))
                | "Spread" >> beam.Reshuffle()
                | "Work" >> beam.ParDo(_Work(work, folder, own, group))
            )
            for level in range(_levels(len(shards), group)):
                outcomes = (
                    outcomes
                    | f"Group{level}" >> beam.GroupByKey()
                    | f"Merge{level}" >> beam.ParDo(_Merge(merge, group))
                )
            _ = outcomes | "Save" >> beam.ParDo(_Save(own))
        if not listing.exists(f"{own}/{_RESULT}", patient=True):
            raise _unseen(folder, "this process", "its workers write to")
        failure, value = pickle.loads(storage.read(f"{own}/{_RESULT}", patient=True))
    finally:
        with contextlib.suppress(OSError):  # would hide the failure of the work
            storage.remove(own)
    if failure is not None:
        raise errors.unpacked(*failure)
    return value


def _write_blocks(shards: Sequence[Any], own: str) -> int:
    """Writes the shards to files in a folder, and returns the number of files."""
    firsts = range(0, len(shards), _BLOCK)
    for block, first in enumerate(firsts):
        content = pickle.dumps(shards[first : first + _BLOCK], pickle.HIGHEST_PROTOCOL)
        storage.write(f"{own}/{_SHARDS.format(block)}", content)
    return len(firsts)


def _levels(shards: int, group: int) -> int:
    """Number of times that groups are merged until one result is left; at least 1."""
    levels = 1
    while group**levels < shards:
        levels += 1
    return levels


def _unseen(folder: str, who: str, whose: str) -> UserError:
    return UserError(
        f"{who} on {socket.gethostname()} does not see the files that {whose} {folder}",
        key="run.root",
        remedy="Set it to a folder that is shared by all hosts of `run.engine`.",
    )


def _check_writable(folder: str) -> None:
    """Rejects a folder where a failure could not be written either: the job ends.

    Raises:
      UserError: Complete by its message, as Beam drops the other fields.
    """
    if filesystems.is_remote(folder):
        _check_remote(folder)
        return
    try:
        os.makedirs(folder, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
    except OSError:
        writable = False
    if not writable:
        raise UserError(
            f"run.root: a worker on {socket.gethostname()} (user id {os.geteuid()}) "
            f"cannot write to {folder}. Let it, or use another folder."
        )


def _check_remote(folder: str) -> None:
    try:
        object_stores.check_writable(folder)
    except UserError as error:
        raise UserError(
            f"on {socket.gethostname()}, whose workers take credentials and addresses "
            f"from their own environment: {error}"
        ) from error


class _Read(beam.DoFn):
    """From the number of a block to (number, shard).

    Without the block, the worker does not see the folder, and `_Work` says so.
    """

    def __init__(self, folder: str, own: str):
        self._folder, self._own = folder, own

    def process(self, block: int) -> Iterator[tuple[int, Any]]:
        _check_writable(self._folder)
        path, first = f"{self._own}/{_SHARDS.format(block)}", block * _BLOCK
        if listing.exists(path, patient=True):
            shards = pickle.loads(storage.read(path, patient=True))
            yield from enumerate(shards, first)
        else:
            yield first, None


class _Work(beam.DoFn):
    """From (number, shard) to (group, (number, outcome)).

    An outcome is a pair: a failure or None, and the result. A failure is data, so that
    no runner tries the work again: the same rows would raise the same exception. After
    a failure of a shard, later shards are skipped; earlier ones could fail as well.
    """

    def __init__(self, work: Callable[[Any], Any], folder: str, own: str, group: int):
        self._work, self._folder, self._own, self._group = work, folder, own, group

    def process(self, element: tuple[int, Any]) -> Iterator[tuple[int, Any]]:
        number, shard = element
        outcome: tuple[Any, Any] = (None, None)
        _check_writable(self._folder)
        if not self._failed_before(number):
            try:
                self._check()
                outcome = (None, self._work(shard))
            except Exception as error:
                outcome = (errors.packed(error), None)
                storage.write(f"{self._own}/{_FAILED}/{number}", "")
        yield number // self._group, (number, outcome)

    def _check(self) -> None:
        if not listing.exists(f"{self._own}/{_BEGUN}", patient=True):
            raise _unseen(self._folder, "a worker", "the driver writes to")

    def _failed_before(self, number: int) -> bool:
        failed = listing.listed(f"{self._own}/{_FAILED}")
        return any(int(os.path.basename(path)) < number for path in failed)


class _Merge(beam.DoFn):
    """From (group, outcomes) to (group of groups, (group, merged outcome))."""

    def __init__(self, merge: Callable[[Any, Any], Any], size: int):
        self._merge, self._size = merge, size

    def process(
        self, element: tuple[int, Iterable[tuple[int, Any]]]
    ) -> Iterator[tuple[int, Any]]:
        group, outcomes = element
        ordered = [outcome for _, outcome in sorted(outcomes, key=lambda each: each[0])]
        failed = [failure for failure, _ in ordered if failure is not None]
        above = group // self._size
        yield above, (group, (failed[0], None) if failed else self._merged(ordered))

    def _merged(self, outcomes: Sequence[tuple[None, Any]]) -> tuple[Any, Any]:
        try:
            return None, functools.reduce(self._merge, (each for _, each in outcomes))
        except Exception as error:
            return errors.packed(error), None


class _Save(beam.DoFn):
    """Writes the outcome to a file that appears when it is whole."""

    def __init__(self, own: str):
        self._own = own

    def process(self, element: tuple[int, Any]) -> Iterable[None]:
        _, (_, outcome) = element
        content = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
        storage.write(f"{self._own}/{_RESULT}", content)
        return ()
