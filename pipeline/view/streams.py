"""Standard output and standard error of this process.

A write to standard output that fails is recorded: an `OSError` alone does not show
whether it comes from there, from another file or from another process's pipe.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any


class _Recorded(io.FileIO):
    """A file descriptor that remembers the first failure of a write.

    Where the reader of a pipe has read enough (`| head`), the rest is discarded: a run
    goes on, and ends with its own exit code.
    """

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            if isinstance(error, BrokenPipeError):
                return len(data)
            raise


def prepare() -> None:
    """Replaces closed streams, and escapes characters that the locale cannot encode."""
    stream = sys.stdout
    if type(sys.stderr) is io.TextIOWrapper:
        raw = io.BufferedWriter(_Recorded(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            raw, sys.stderr.encoding, "backslashreplace", line_buffering=True
        )
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-` in a shell
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if type(stream) is not io.TextIOWrapper:  # closed or captured
        return
    with contextlib.suppress(OSError):  # reported with the first write of ours
        stream.flush()  # its buffer comes first
    recorded: Any = _Recorded(stream.fileno(), "w", closefd=False)
    is_buffered = isinstance(stream.buffer, io.BufferedWriter)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(recorded) if is_buffered else recorded,
        encoding=stream.encoding,
        errors="backslashreplace",  # as on stderr: a locale without `ö` is no failure
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def failure() -> OSError | None:
    """Flushes standard output, and returns the first failure of a write; None if none.

    After a failure all further output is discarded, so that the interpreter does not
    report the failure again at its exit.
    """
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, _Recorded):
        return None
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if raw.failure:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), raw.fileno())
    return raw.failure


def warn(text: str) -> None:
    """Writes `text` as a line to standard error, if that is possible."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # Else the interpreter tries again at its exit, and changes the exit code.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
