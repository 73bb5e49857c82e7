"""Runs a Python module in a child process that never outlives its parent.

The parent calls `run("package.module", request)`; the module's `__main__` calls
`serve(work)`, and `work(request)` returns the answer. Request and answer are JSON. The
parent copies the child's output to its own stderr, each line with a prefix, and raises
an exception of the child again, with the same message.

The child is in a new session, so that Ctrl-C in a terminal reaches only the parent; the
parent sends SIGTERM to the child. If the parent dies, the kernel kills the child, and
so does a thread of the child that reads a pipe from the parent. The child's temporary
files (TensorFlow leaves some) are deleted after its end.
"""

from __future__ import annotations

import contextlib
import io
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

from strategos.components import errors, events, fork_server, processes
from strategos.components.files import commit, temporary
from strategos.components.limits import oom

HASH_SEED = {"PYTHONHASHSEED": "0"}
"""Environment variable for a process that runs the user's code.

The order of a Python set follows the interpreter's hash seed, which is random by
default: `build_model` would order the features of a set differently in each task of a
gang, after a restart, and in the export.
"""

TENSORFLOW = {
    **HASH_SEED,
    fork_server.KERAS: "1",  # `tf.keras` is tf-keras, also in user code
    "KERAS_BACKEND": "tensorflow",  # of the package `keras`; overrides ~/.keras
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # by default, the first process takes it all
}
"""Environment variables for a process that imports TensorFlow."""


NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}
"""Environment variable for a process that works beside others and trains nothing.

Each process that uses a GPU takes half a gigabyte of its memory, and seconds to start.
"""

ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
"""Environment variables for a process that works on a shard at a time.

By default TensorFlow starts two threads for each core in each process, and adds up
numbers by as many parts as there are cores: the last digit would depend on the machine.
"""


def tensorflow(keras: int | None) -> dict[str, str]:
    """Environment variables for a process that imports the module of `trainer`.

    Args:
      keras: `trainer.keras`: 3 if `tf.keras` is Keras 3 there, or None.
    """
    return {**TENSORFLOW, fork_server.KERAS: "0"} if keras == 3 else TENSORFLOW


class WorkerError(RuntimeError):
    """A child process failed, and the cause is not the user's input."""


@contextlib.contextmanager
def log_kept_back() -> Iterator[None]:
    """Shows the log of the workers that the block runs only if one of them fails.

    Raises:
      WorkerError: As raised by the block.
    """
    log = io.StringIO()
    try:
        with contextlib.redirect_stderr(log):
            yield
    except WorkerError:
        sys.stderr.write(log.getvalue())
        raise


class _Terminated(BaseException):
    """This process received SIGTERM."""


def run(
    module: str,
    request: Mapping[str, Any],
    *,
    name: str,
    env: Mapping[str, str] | None = None,
    grace: float = processes.Grace.WORKER,
    wait: Callable[[Any], int] = lambda process: process.wait(),
) -> dict[str, Any]:
    """Runs `python -m module` on `request` and returns its answer.

    SIGTERM to this process ends the child first, unless another handler is installed.

    Args:
      module: A module with a `__main__` that calls `serve`.
      request: The argument of the module's work; JSON-able.
      name: Name of the process in log lines and errors, such as "trainer".
      env: Environment variables, added to this process's.
      grace: Seconds from SIGTERM to SIGKILL for the child.
      wait: Waits for the child and returns its exit code; if it raises, the child is
        ended.

    Raises:
      UserError: The child raised a UserError; it is raised here with the same class and
        fields.
      WorkerError: The child raised another exception, or ended without an answer.
    """
    with terminated_last(), temporary.folder() as folder:
        request_file, answered = (
            Path(folder, "request.json"),
            Path(folder, "answer.json"),
        )
        sink = {"path": events.sink_path(), "node": events.current_node()}
        request_file.write_text(json.dumps({"events": sink, "request": dict(request)}))
        kills = oom.OomKills()
        environ = {**os.environ, "TMPDIR": folder, **(env or {})}
        words = [str(request_file), str(answered)]
        process = fork_server.launch(module, words, environ, folder)
        forwarding = threading.Thread(target=_forward, args=(process, name))
        forwarding.daemon = True
        forwarding.start()
        try:
            code = wait(process)
        finally:
            processes.end_session(process, grace, ask_all=False)
            if process.stdin:
                process.stdin.close()
            forwarding.join(processes.Grace.WORKER)
        return _answer_of(answered, code, name, kills)


@contextlib.contextmanager
def terminated_last() -> Iterator[None]:
    """Makes SIGTERM unwind the `with` block before it ends this process.

    Without effect outside the main thread, or if SIGTERM has another handler.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    came = False

    def terminate(*_: object) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
        raise _Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # `came`, not _Terminated: C++ libraries replace exceptions raised inside them.
        if came:
            os.kill(os.getpid(), signal.SIGTERM)


def serve(work: Callable[[dict[str, Any]], dict[str, Any]]) -> NoReturn:
    """Answers one request and exits: the `__main__` of a module that `run` starts.

    Args:
      work: Takes the request and returns the answer; both are JSON-able.
    """
    parent, request_file, answered = sys.argv[1:]
    processes.die_with_parent(int(parent))
    end_with_input()
    message = json.loads(Path(request_file).read_text())
    events.open_sink(message["events"]["path"], node=message["events"]["node"])
    try:
        content = {"answer": work(message["request"])}
    except SystemExit as end:
        leave(end.code)
    except BaseException as error:
        content = {"error": described(error)}
    commit.write(answered, json.dumps(content))
    leave(int("error" in content))


def restart_with_hash_seed() -> None:
    """Starts this program again with the hash seed of `HASH_SEED`, if it has another.

    Call it first in a program that others start and that runs the user's code.
    """
    if HASH_SEED.items() <= os.environ.items():
        return
    os.environ.update(HASH_SEED)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def end_with_input() -> None:
    """Kills this process's session when standard input ends.

    Standard input is a pipe from the parent process, and closes when the parent ends
    for any reason.
    """
    processes.when_ended(0, lambda: os.killpg(0, signal.SIGKILL))


def leave(code: str | int | None) -> NoReturn:
    """Exits without Python's shutdown: TensorFlow and S3 can hang or crash in it.

    Args:
      code: As for `sys.exit`: a message is printed, and the exit code is 1.
    """
    with contextlib.suppress(OSError, ValueError):  # the reader may have ended
        if isinstance(code, str):
            print(code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1 if isinstance(code, str) else code or 0)


def described(error: BaseException) -> dict[str, Any]:
    """Logs the traceback of an internal error or of a UserError's cause.

    Returns:
      `summary(error)`.
    """
    if not isinstance(error, (errors.UserError, WorkerError)):
        traceback.print_exception(error)
    elif error.__cause__ is not None:
        traceback.print_exception(error.__cause__)
    return summary(error)


def summary(error: BaseException) -> dict[str, Any]:
    """Encodes an error as JSON-able values, which `error_of` decodes.

    A UserError keeps its class and fields; any other error keeps the name of its class
    and its message.
    """
    if isinstance(error, errors.UserError):
        return error.to_json()
    return {"type": type(error).__name__, "message": str(error)}


def error_of(description: Mapping[str, Any], process: str = "") -> Exception:
    """Decodes the result of `described` or `summary`.

    Args:
      description: The encoded error.
      process: Name of the process that raised it, such as "worker-0", for the message.
        Default: the message names no process.

    Returns:
      A UserError of the same class with the same fields, or a WorkerError.
    """
    kind, message = description["type"], description.get("message", "")
    if kind in errors.KINDS:
        error = errors.from_json(description)
        return error.of(process) if process else error
    if kind != WorkerError.__name__:
        message = f"{kind}: {message}"
    return WorkerError(f"{process}: {message}" if process else message)


def _answer_of(path: Path, code: int, name: str, kills: oom.OomKills) -> dict[str, Any]:
    """The answer in the file `path`; raises the error in it, or that it is missing."""
    if not path.exists():
        raise _unanswered(code, name, kills)
    content = json.loads(path.read_text())
    if "error" in content:
        raise error_of(content["error"])
    return content["answer"]


def _forward(process: subprocess.Popen[bytes] | fork_server.Child, name: str) -> None:
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
