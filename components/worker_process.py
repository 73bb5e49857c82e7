"""One Python module in a process of its own, which never outlives this one.

The parent calls `run("package.module", request)`; the module's `__main__` calls
`serve(work)`, and `work(request)` returns the answer. Request and answer are JSON. What
the child prints reaches this process's stderr, line by line with a prefix; an exception
in the child is raised here with its own message.

The child is in a session of its own, so that Ctrl-C in a terminal reaches the parent
alone, which then asks it to end. When the parent is gone for whatever reason, the
kernel ends the child, and so does a thread of the child that watches a pipe from the
parent. Its temporary files (TensorFlow leaves some) go when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from strategos.components import errors, events, oom, processes
from strategos.components.files import temporary

TENSORFLOW = {
    "TF_USE_LEGACY_KERAS": "1",  # `tf.keras` is tf-keras, also in user code
    "KERAS_BACKEND": "tensorflow",  # of the package `keras`, whatever ~/.keras says
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""Variables for a process that imports TensorFlow."""

_GRACE_SECONDS = 5.0


class WorkerError(RuntimeError):
    """A process of ours ended by an error that is no problem of the user's input."""


class _Terminated(BaseException):
    """SIGTERM came to the parent."""


def run(
    module: str,
    request: Mapping[str, Any],
    *,
    name: str,
    env: Mapping[str, str] | None = None,
    grace: float = _GRACE_SECONDS,
) -> dict[str, Any]:
    """Runs `python -m module` on `request` and returns its answer.

    SIGTERM to this process, where nothing else handles it, first ends the child.

    Args:
      module: A module whose `__main__` calls `serve`.
      request: What to work on; JSON-able.
      name: What to call the process in log lines and errors, such as "trainer".
      env: Variables to set besides this process's own.
      grace: Seconds that the child has to end by itself when it is asked to.

    Raises:
      UserError: What the child raised, of the same class.
      WorkerError: The child raised something else, or ended without an answer.
    """
    with terminated_last(), temporary.folder() as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        sink = {"path": events.sink_path(), "node": events.current_node()}
        asked.write_text(json.dumps({"events": sink, "request": dict(request)}))
        kills = oom.OomKills()
        process = processes.start(
            module,
            [str(asked), str(answered)],
            stdin=subprocess.PIPE,  # never written to: its end tells of our own
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "TMPDIR": folder, **(env or {})},
        )
        forwarding = threading.Thread(target=_forward, args=(process, name))
        forwarding.daemon = True
        forwarding.start()
        try:
            code = process.wait()
        finally:
            processes.end_session(process, grace, ask_all=False)
            process.stdin.close()
            forwarding.join(_GRACE_SECONDS)
        return _answer_of(answered, code, name, kills)


@contextlib.contextmanager
def terminated_last() -> Iterator[None]:
    """SIGTERM leaves the block as an exception would, and then ends this process."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def terminate(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def serve(work: Callable[[dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """The `__main__` of a module that `run` starts: answers one request and exits."""
    parent, asked, answered = sys.argv[1:]
    processes.die_with_parent(int(parent))
    end_with_input()
    message = json.loads(Path(asked).read_text())
    events.open_sink(message["events"]["path"], node=message["events"]["node"])
    try:
        content = {"answer": work(message["request"])}
    except SystemExit as end:
        leave(end.code)
    except BaseException as error:
        content = {"error": described(error)}
    aside = Path(answered).with_suffix(".tmp")
    aside.write_text(json.dumps(content))
    aside.rename(answered)
    leave(int("error" in content))


def end_with_input() -> None:
    """Ends this process and all that it starts when its standard input ends.

    That is a pipe from the process that started it, in a session of its own: it ends
    when that process is gone, for whatever reason.
    """
    threading.Thread(target=_end_at_end_of_input, daemon=True).start()


def _end_at_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.killpg(0, signal.SIGKILL)


def leave(code: int) -> NoReturn:
    """Ends this process at once: the shutdown of TensorFlow can hang or crash."""
    with contextlib.suppress(OSError, ValueError):  # nobody may be there to read
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def described(error: BaseException) -> dict[str, Any]:
    """`error` as JSON-able values; prints the traceback of what is no user's error."""
    if not isinstance(error, (errors.UserError, WorkerError)):
        traceback.print_exception(error)
    elif error.__cause__ is not None:
        traceback.print_exception(error.__cause__)
    return summary(error)


def summary(error: BaseException) -> dict[str, Any]:
    """`error` as JSON-able values; a user's error keeps its class and its fields."""
    if isinstance(error, errors.UserError):
        return error.to_json()
    return {"type": type(error).__name__, "message": str(error)}


def error_of(description: Mapping[str, Any], process: str = "") -> Exception:
    """The error that was described, of the same class if it is one of ours.

    Args:
      description: What `described` or `summary` returned.
      process: The process that raised it, such as "worker-0", for the message.
    """
    kind, message = description["type"], description.get("message", "")
    if kind in errors.KINDS:
        error = errors.from_json(description)
        return error.of(process) if process else error
    if kind != WorkerError.__name__:
        message = f"{kind}: {message}"
    return WorkerError(f"{process}: {message}" if process else message)


def _answer_of(path: Path, code: int, name: str, kills: oom.OomKills) -> dict[str, Any]:
    """What the process that wrote `path` and ended with `code` answered, or raised."""
    if not path.exists():
        raise _unanswered(code, name, kills)
    content = json.loads(path.read_text())
    if "error" in content:
        raise error_of(content["error"])
    return content["answer"]


def _forward(process: subprocess.Popen[bytes], name: str) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            sys.stderr.write(f"[{name}] {line.decode(errors='replace')}")
            sys.stderr.flush()


def _unanswered(code: int, name: str, kills: oom.OomKills) -> Exception:
    if code == -signal.SIGKILL:
        remedy = "use a smaller `batch_size` or model, or a machine with more memory"
        return errors.UserError(
            f"The {name} process was killed (SIGKILL). {kills.explain(remedy)}"
        )
    if code == errors.ExitCode.PREEMPTED:
        return errors.UserError(
            f"The {name} process was asked to end (SIGTERM) and did. Run again to "
            "go on from what it has saved."
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return WorkerError(f"the {name} process ended with {how}, without an answer")
