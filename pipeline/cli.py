"""`strategos …`: parses the command line, runs the command and prints its error.

Exit codes: 0 done (and blessed); 1 failed; 2 bad input; 3 not blessed or stopped by a
gate; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from strategos.components.errors import ExitCode, UserError
from strategos.components.files import full_disk
from strategos.pipeline import command_line
from strategos.pipeline.run.interruption import Interruption
from strategos.pipeline.view import streams

_HOMES = {
    "init": "init.command",
    "data": "init.command",
    "run": "remote_command",
    "debug": "debugging.command",
    "anomalies": "debugging.anomalies",
    "check-cluster": "debugging.check_cluster_command",
    "runs": "runs_command",
    "reproduce": "comparing.command",
    "bisect": "comparing.bisecting",
    "docs": "command_line.docs",
    "completion": "command_line.completion",
    "explain": "comparing.explaining",
    "dev": "dev.command",
    "report": "report.command",
    "ui": "ui.command",
    "retrain": "retrain_command",
    "schedule": "schedule_command",
    "clean": "clean_command",
    "image": "image_command",
    "models": "models_command",
    "canary": "models_command",
    "rollback": "models_command",
    "predict": "predicting.command",
    "serve": "predicting.serve_command",
}
"""Modules of the commands that are not in `commands`."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
      argv: The arguments after the program's name; by default `sys.argv[1:]`.
    """
    streams.prepare()
    try:
        code = _command(command_line.parser().parse_args(argv))
    except (OSError, SystemExit):  # argparse: --help, --version, a wrong argument
        if not streams.failure():
            raise
    lost = streams.failure()
    if lost is None or isinstance(lost, BrokenPipeError):  # `head` has read enough
        return code
    streams.warn(f"strategos: cannot write to standard output: {lost.strerror}")
    return ExitCode.FAILED


def _command(arguments: argparse.Namespace) -> int:
    """Runs one command, reports its error if any, and returns the exit code."""
    # A worker handles SIGTERM itself: its host is being reclaimed.
    signals = _SIGNALS if arguments.command != "worker" else _SIGNALS[:1]
    try:
        with Interruption(*signals):
            home = importlib.import_module(
                f"strategos.pipeline.{_HOMES.get(arguments.command, 'commands')}"
            )
            code = getattr(home, arguments.command.replace("-", "_"))(arguments)
        return _end_as_interrupted() if code == ExitCode.INTERRUPTED else code
    except UserError as error:
        if arguments.debug:
            raise
        streams.warn(f"strategos: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return _end_as_interrupted("strategos: interrupted\n")
    except Exception as error:
        if streams.failure():
            return ExitCode.FAILED
        if arguments.debug:
            raise
        streams.warn(f"strategos: {_explain(error)}")
        return ExitCode.FAILED


def _explain(error: Exception) -> str:
    if full_disk.is_reported(str(error)):
        return full_disk.message(str(error), ".")
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return (
            f"the locale ({sys.getfilesystemencoding()}) cannot read a name in "
            f"{error.object!r}\n    Set LC_ALL=C.UTF-8, or PYTHONUTF8=1, and run again."
        )
    return (
        f"{type(error).__name__}: {error}\nThis is a bug in Strategos, not in your "
        "pipeline; run again with --debug to see where."
    )


def _end_as_interrupted(message: str = "") -> NoReturn:
    """Ends this process with exit code INTERRUPTED, even if more signals follow.

    Uses `os._exit`: after a KeyboardInterrupt inside `exec`, CPython re-raises SIGINT
    at shutdown even if it was caught.
    """
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the reader of a pipe may have ended
        sys.stderr.write(message)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
