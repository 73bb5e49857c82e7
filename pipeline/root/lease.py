"""Allows one run at a time of a pipeline with ML Metadata on a server.

The lock of a root excludes runs on one machine; a lease excludes runs on others. It
is a context of ML Metadata with the name `PIPELINE/NUMBER`. The database has unique
names, so one of several processes creates the next number: the new holder.

The holder counts `beat` up every 5 s. Others take over after they have seen the same
beat for 30 s by their own clock: clocks of two machines are never compared. A holder
that was frozen finds the next number at its next beat, or at its next node.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strategos.components.errors import UserError
from strategos.pipeline.root import metadata, recent
from strategos.pipeline.root.lock import HeldError, held_by

if TYPE_CHECKING:
    import ml_metadata
    from ml_metadata.proto import metadata_store_pb2 as mlmd

_TYPE = "strategos.Lease"
_BEAT_SECONDS = 5.0
_EXPIRY_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_SHOWN = ("run_id", "pid", "host", "since")


class LostError(UserError):
    """Another run has taken the lease over, because this one did not renew it."""


def last(connection: mlmd.ConnectionConfig, pipeline: str) -> int:
    """Waits until it is certain that no run holds the lease; returns its last number.

    It takes up to 5 s if a run holds the lease, and 30 s if the holder is gone.

    Args:
      connection: ML Metadata's; an SQLite file has no lease.
      pipeline: The pipeline's name.

    Returns:
      For `hold`; 0 if no run has held the lease yet.

    Raises:
      HeldError: A run on another machine holds the lease.
      BadInputError: The database cannot be used.
    """
    if connection.HasField("sqlite"):
        return 0
    store = metadata.initialise(connection)
    with metadata.explained(connection):
        newest = _newest(store, pipeline)
        if newest is None:
            return 0
        if not _has_ended(store, newest):
            raise _held(pipeline, newest)
        return _number(newest)


@contextlib.contextmanager
def hold(
    connection: mlmd.ConnectionConfig, pipeline: str, after: int, run_id: str
) -> Iterator[Lease | None]:
    """Holds the lease while the block runs; yields None for an SQLite file.

    Args:
      connection: ML Metadata's.
      pipeline: The pipeline's name.
      after: From `last`. Values read from ML Metadata since then are still true.
      run_id: Id of the holder, for messages of others.

    Raises:
      HeldError: Another run has held the lease since `last` was called.
    """
    if connection.HasField("sqlite"):
        yield None
        return
    lease = Lease(connection, pipeline, after + 1, run_id)
    try:
        yield lease
    finally:
        lease.release()


def reject_lost(store: ml_metadata.MetadataStore, pipeline: str, run_id: str) -> None:
    """Rejects a run that has lost its lease to another run.

    Args:
      store: ML Metadata.
      pipeline: The pipeline's name.
      run_id: The run.

    Raises:
      LostError: Another run has the newest lease.
    """
    newest = _newest(store, pipeline)
    if newest is not None and newest.custom_properties["run_id"].string_value != run_id:
        raise _lost(newest)


def holders(store: ml_metadata.MetadataStore) -> dict[str, dict[str, Any]]:
    """The runs on a server that have renewed their lease lately, to show them.

    Args:
      store: ML Metadata.

    Returns:
      By pipeline: `run_id`, `pid`, `host`, `since`.
    """
    since = (time.time() - 2 * _EXPIRY_SECONDS) * 1000
    newest: dict[str, mlmd.Context] = {}
    for context in recent.contexts(store, _TYPE, every=False):
        newest.setdefault(_pipeline(context), context)
    return {
        pipeline: _about(context)
        for pipeline, context in newest.items()
        if not _is_released(context) and context.last_update_time_since_epoch > since
    }


class Lease:
    """A lease that this process holds, renewed by a thread.

    Attributes:
      lost: Why the lease is lost; None while it is held.
    """

    def __init__(
        self, connection: mlmd.ConnectionConfig, pipeline: str, number: int, run_id: str
    ):
        """See `hold`."""
        self.lost: LostError | None = None
        self._connection = connection
        self._next = f"{pipeline}/{number + 1}"
        self._ended, self._interrupts = threading.Event(), False
        store = metadata.store(connection, 0.0)
        with metadata.explained(connection):
            before = _find(store, f"{pipeline}/{number - 1}") if number > 1 else None
            self._context = _create(store, pipeline, number, run_id)
            # The last holder may have returned just before: its lease was renewed
            # without knowledge of this one. It knows at its next beat.
            if before and _beat(_find(store, before.name)) != _beat(before):
                time.sleep(_EXPIRY_SECONDS)
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Sends SIGTERM to this process if the lease is lost while the block runs."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def release(self) -> None:
        """Lets others take the lease at once; without the database it expires."""
        self._ended.set()
        self._thread.join(_BEAT_SECONDS)
        if self.lost:
            return
        with contextlib.suppress(Exception):
            self._context.custom_properties["released"].bool_value = True
            metadata.store(self._connection, 0.0).put_contexts([self._context])

    def _renew(self) -> None:
        store = None
        while not self._ended.wait(_BEAT_SECONDS):
            try:
                store = store or metadata.store(self._connection, 0.0)
                self._context.custom_properties["beat"].int_value += 1
                store.put_contexts([self._context])
                successor = _find(store, self._next)
            except Exception:  # the server is away: nobody can take the lease either
                store = None
                continue
            if successor is not None:
                self.lost = _lost(successor)
                if self._interrupts:
                    os.kill(os.getpid(), signal.SIGTERM)
                return


def _create(
    store: ml_metadata.MetadataStore, pipeline: str, number: int, run_id: str
) -> mlmd.Context:
    """Creates the context of a number.

    Raises:
      HeldError: Another run has created it.
    """
    from ml_metadata import errors
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    name = f"{pipeline}/{number}"
    kind = store.put_context_type(mlmd.ContextType(name=_TYPE))
    context = mlmd.Context(type_id=kind, name=name)
    facts = context.custom_properties
    facts["run_id"].string_value = run_id
    facts["host"].string_value = socket.gethostname()
    facts["pid"].int_value, facts["since"].double_value = os.getpid(), time.time()
    try:
        store.put_contexts([context])
    except errors.AlreadyExistsError:
        raise _held(pipeline, _find(store, name)) from None
    return _find(store, name)


def _newest(store: ml_metadata.MetadataStore, pipeline: str) -> mlmd.Context | None:
    newest = recent.contexts(store, _TYPE)
    return next((each for each in newest if _pipeline(each) == pipeline), None)


def _has_ended(store: ml_metadata.MetadataStore, context: mlmd.Context) -> bool:
    """Whether a lease was released, or is not renewed while this process waits."""
    seen, began, reported = _beat(context), time.monotonic(), False
    while not _is_released(context):
        waited = time.monotonic() - began
        if _beat(context) != seen:
            return False
        if waited > _EXPIRY_SECONDS:
            return True
        if waited > 2 * _BEAT_SECONDS and not reported:
            who = _about(context)
            print(
                f"run {who['run_id']} on {who['host']} has not renewed its lease for "
                f"{waited:.0f} s; taking over after {_EXPIRY_SECONDS:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            reported = True
        time.sleep(_LOOK_SECONDS)
        context = _find(store, context.name)
    return True


def _find(store: ml_metadata.MetadataStore, name: str) -> mlmd.Context | None:
    return store.get_context_by_type_and_name(_TYPE, name)


def _pipeline(context: mlmd.Context) -> str:
    return context.name.rpartition("/")[0]


def _number(context: mlmd.Context) -> int:
    return int(context.name.rpartition("/")[2])


def _beat(context: mlmd.Context) -> int:
    return context.custom_properties["beat"].int_value


def _is_released(context: mlmd.Context) -> bool:
    return context.custom_properties["released"].bool_value


def _about(context: mlmd.Context) -> dict[str, Any]:
    values = {name: context.custom_properties[name] for name in _SHOWN}
    return {n: getattr(v, v.WhichOneof("value")) for n, v in values.items()}


def _held(pipeline: str, context: mlmd.Context) -> HeldError:
    return HeldError(
        f"pipeline {pipeline}: {held_by(_about(context))}. One run at a time works on "
        "a pipeline: wait for it, or stop it."
    )


def _lost(successor: mlmd.Context) -> LostError:
    who = _about(successor)
    return LostError(
        f"this run did not renew its lease for {_EXPIRY_SECONDS:.0f} s, so run "
        f"{who['run_id']} on {who['host']} has taken over",
        remedy="Nothing to do, if this machine was frozen or cut off from ML Metadata: "
        "that run does the work.",
    )
