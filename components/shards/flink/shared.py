"""The connection to Flink that the pipelines of this process share."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from concurrent import futures
from pathlib import Path

from strategos.components import events
from strategos.components.shards.engine import Engine
from strategos.components.shards.flink.connection import Connection, connected

_lock = threading.Lock()
_opened: dict[Engine, futures.Future[Connection]] = {}


def connection(engine: Engine) -> Connection:
    """Connects to Flink, at the first call for an engine; see `connected`.

    The connection ends with this process. A run with all nodes cached never calls this,
    and so starts no cluster.

    Args:
      engine: Of runner `flink`.

    Raises:
      BadInputError: Java or the jars are missing; or the master is rejected.
      UserError: A process did not start.
    """
    with _lock:
        opened = _opened.get(engine)
        if opened is None or (opened.done() and _is_over(opened)):
            opened = _opened[engine] = futures.Future()
            # The kernel ends a child with the thread that started it, and TFX's
            # BeamDagRunner runs each node in another thread.
            holder = threading.Thread(target=_hold, args=(engine, opened), daemon=True)
            holder.start()
        return opened.result()


def _is_over(opened: futures.Future[Connection]) -> bool:
    return opened.exception() is not None or opened.result().lost.done()


def _hold(engine: Engine, opened: futures.Future[Connection]) -> None:
    with contextlib.ExitStack() as stack:
        try:
            opened.set_result(
                stack.enter_context(
                    connected(
                        engine.master, engine.taskmanagers, engine.threads, _logs()
                    )
                )
            )
        except BaseException as error:
            opened.set_exception(error)
            return
        threading.Event().wait()


def _logs() -> Path:
    """A folder beside the run's log; a temporary one outside of a run."""
    sink = events.sink_path()
    if sink is not None:
        return Path(sink).parent / "flink"
    return Path(tempfile.mkdtemp(prefix="flink-"))
