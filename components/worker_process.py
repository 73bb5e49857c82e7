"""One Python module in a process of its own, which never outlives this one.

The parent calls `run("package.module", request)`; the module's `__main__` calls
`serve(work)`, and `work(request)` returns the answer. Request and answer are JSON. What
the child prints reaches this process's stderr, line by line with a prefix; an exception
in the child is raised here with its own message.

The child is in a session of its own, so that Ctrl-C in a terminal reaches the parent
alone, which then ends it. When the parent is gone for whatever reason, the kernel ends
the child, and so does a thread of the child that watches a pipe from the parent. Its
temporary files (TensorFlow leaves some) go when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from strategos.components import errors, events
from strategos.components.processes import die_with_parent

TENSORFLOW = {
    "TF_USE_LEGACY_KERAS": "1",  # `tf.keras` is tf-keras, also in user code
    "TF_CPP_MIN_LOG_LEVEL": "2",
}
"""Variables for a process that imports TensorFlow."""

_GRACE_SECONDS = 5.0
_ORPHANED = 113  # exit code of a child whose parent is gone


class WorkerError(RuntimeError):
    """A process of ours ended by an error that is no problem of the user's input."""


def run(
    module: str,
    request: Mapping[str, Any],
    *,
    name: str,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Runs `python -m module` on `request` and returns its answer.

    Args:
      module: A module whose `__main__` calls `serve`.
      request: What to work on; JSON-able.
      name: What to call the process in log lines and errors, such as "trainer".
      env: Variables to set besides this process's own.

    Raises:
      UserError: What the child raised, of the same class.
      WorkerError: The child raised something else, or ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="strategos-") as folder:
        asked, answered = Path(folder, "request.json"), Path(folder, "answer.json")
        sink = {"path": events.sink_path(), "node": events.current_node()}
        asked.write_text(json.dumps({"events": sink, "request": dict(request)}))
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(asked), str(answered)],
            stdin=subprocess.PIPE,  # never written to: its end tells of our own
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "TMPDIR": folder, **(env or {})},
        )
        try:
            _forward(process, name)
            code = process.wait()
        finally:
            _end(process)
        return answer_of(answered, code, name)


def serve(work: Callable[[dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """The `__main__` of a module that `run` starts: answers one request and exits."""
    watch_parent()
    asked, answered = sys.argv[1:]
    message = json.loads(Path(asked).read_text())
    events.open_sink(message["events"]["path"], node=message["events"]["node"])
    answer(Path(answered), lambda: work(message["request"]))


def answer(path: Path, work: Callable[[], dict[str, Any]]) -> NoReturn:
    """Writes what `work` returns or raises to `path`, and ends this process.

    Ends it by `os._exit`: the shutdown of TensorFlow's threads can hang or crash.
    """
    code = 0
    try:
        content = {"answer": work()}
    except BaseException as error:
        if not isinstance(error, (errors.UserError, WorkerError)):
            traceback.print_exc()
        elif error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        content = {"error": {"type": type(error).__name__, "message": str(error)}}
        code = 1
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(content))
    aside.rename(path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def answer_of(path: Path, code: int, name: str) -> dict[str, Any]:
    """What the process that wrote `path` and ended with `code` answered, or raised."""
    if not path.exists():
        raise _unanswered(code, name)
    content = json.loads(path.read_text())
    if "error" not in content:
        return content["answer"]
    kind, message = content["error"]["type"], content["error"]["message"]
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.UserError):
        raise known(message)
    raise WorkerError(message if kind == WorkerError.__name__ else f"{kind}: {message}")


def watch_parent() -> None:
    """Ends this process as soon as the one that started or forked it is gone."""
    die_with_parent()
    threading.Thread(target=_exit_at_end_of_input, daemon=True).start()


def _exit_at_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os._exit(_ORPHANED)


def _forward(process: subprocess.Popen[bytes], name: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        sys.stderr.write(f"[{name}] {line.decode(errors='replace')}")
        sys.stderr.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and all that it started, by SIGTERM, then by SIGKILL."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


def _unanswered(code: int, name: str) -> Exception:
    if code == -signal.SIGKILL:
        return errors.UserError(
            f"The {name} process was killed (SIGKILL), which is what Linux does when "
            "memory runs out. Look into `dmesg`; use a smaller `batch_size` or model, "
            "or a machine with more memory."
        )
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return WorkerError(f"the {name} process ended with {how}, without an answer")
