"""`strategos dev`: runs the pipeline after each change of its modules or settings."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from strategos.components import fork_server, node_ids
from strategos.components.errors import ExitCode, UserError
from strategos.components.user_code import fingerprint
from strategos.pipeline import api, commands
from strategos.pipeline.config.nodes import order
from strategos.pipeline.dev import sample
from strategos.pipeline.runners import apart, executor_server, light
from strategos.pipeline.view import report
from strategos.pipeline.view.live import LiveView

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.runs import Run

_RELEASING = (node_ids.PUSHER, node_ids.BULK_INFERRER)
_LOOK_SECONDS = 0.2
_Seen: TypeAlias = Mapping[Path, tuple[int, int] | None]


def dev(arguments: argparse.Namespace) -> int:
    """`strategos dev`, until Ctrl-C or SIGTERM.

    Args:
      arguments: The parsed command line.

    Returns:
      The exit code.
    """
    if arguments.rows is not None:
        config = commands.load(arguments).config
        arguments.set = [*arguments.set, *sample.of(config, arguments.rows)]
    with contextlib.suppress(KeyboardInterrupt), executor_server.served():
        _start_orchestrators()
        _Loop(arguments, Watch(functools.partial(files, arguments))).run()
    print("stopped watching", file=sys.stderr)
    return ExitCode.DONE


def _start_orchestrators() -> None:
    """Imports modules of orchestrators, and lets `apart.run` fork them from here."""
    from strategos.pipeline.checks import training  # noqa: F401
    from strategos.pipeline.history import runs  # noqa: F401
    from strategos.pipeline.run import orchestration  # noqa: F401

    light.import_launcher()
    fork_server.start()


def files(arguments: argparse.Namespace) -> set[Path]:
    """The files to watch: a change of settings, modules or the schema starts a run.

    Args:
      arguments: The parsed command line.

    Returns:
      Those that are known; only the YAML files if the settings are invalid.
    """
    paths = {Path(each) for each in (arguments.pipeline, *arguments.overlay)}
    with contextlib.suppress(UserError, OSError):
        config = commands.load(arguments).config
        paths |= _modules(config)
        paths |= {Path(each) for each in [config.schema_.file] if each}
    return paths


def _modules(config: Config) -> set[Path]:
    """The sources of the user's modules, and of the modules that they import."""
    named = [each.module for each in config.nodes.values()]
    named += [config.transform.module, config.trainer.module]
    members = (fingerprint.members(str(config.folder), name) for name in named)
    paths = {path for each in members for path in each.values()}
    return {path for path in paths if path.suffix == ".py"}


class Watch:
    """Notices changes of files.

    Args:
      list_files: Returns the files; called again after each change.
      sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        list_files: Callable[[], set[Path]],
        sleep: Callable[[float], Any] = time.sleep,
    ):
        self._list, self._sleep = list_files, sleep
        self._files: set[Path] = set()
        self._seen: _Seen = {}

    def begin(self) -> None:
        """Takes the present content as known."""
        self._files |= self._list()  # a module with a syntax error imports nothing
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """The files that have changed since `begin`, in the order of their names."""
        now = self._look()
        return sorted(path for path in self._files if now[path] != self._seen[path])

    def wait(self) -> list[Path]:
        """Waits for a change, and for its end; returns the changed files."""
        while not self.changed():
            self._sleep(_LOOK_SECONDS)
        before = None
        while before != (before := self._look()):  # several files, or a long one
            self._sleep(_LOOK_SECONDS / 4)
        return self.changed()

    def _look(self) -> _Seen:
        return {path: _state(path) for path in self._files}


def _state(path: Path) -> tuple[int, int] | None:
    """Time of the last change and size; None while an editor replaces the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class _ChangedError(Exception):
    """A file has changed during a run."""


class _Loop:
    """Runs the pipeline now and after each change.

    Args:
      arguments: The parsed command line.
      watch: Notices changes.
    """

    def __init__(self, arguments: argparse.Namespace, watch: Watch):
        self._arguments, self._watch = arguments, watch
        self._last: dict[str, float] | None = None

    def run(self) -> None:
        """Runs until an exception ends it, such as a KeyboardInterrupt."""
        while True:
            self._watch.begin()
            begun = time.monotonic()
            try:
                self._show(self._once().run)
                _print(f"{time.monotonic() - begun:.1f} s; waiting for a change")
            except _ChangedError:
                _print("a file has changed: the run is ended")
            except UserError as error:
                print(f"strategos: {error}", file=sys.stderr)
                _print("waiting for a change")
            names = map(os.path.relpath, self._watch.wait())
            _print(f"changed: {', '.join(names)}")

    def _once(self) -> api.RunResult:
        arguments = self._arguments
        config = commands.load(arguments).config
        request = apart.RunRequest(
            pipeline=arguments.pipeline,
            overlays=arguments.overlay,
            sets=[*arguments.set, "run.report=false"],  # it would delay the next run
            to_node=None if arguments.push else _last_before_push(config),
        )
        return apart.run(request, self._follow)

    def _follow(self, events: str, process: Any) -> int:
        """Shows a run until its process has ended.

        Raises:
          _ChangedError: A file has changed meanwhile.
        """
        with LiveView(events):
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_SECONDS)
                if self._watch.changed():
                    raise _ChangedError

    def _show(self, run: Run) -> None:
        query = f"strategos predict {self._arguments.pipeline} ROWS.csv"
        report.brief(run, self._last, query)
        self._last = report.measured(run) or self._last


def _last_before_push(config: Config) -> str | None:
    """The node to end with; None for a pipeline that neither pushes nor predicts."""
    known = order.names(config)
    released = [known.index(x) for x in _RELEASING if x in known]
    return known[min(released) - 1] if released else None


def _print(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
