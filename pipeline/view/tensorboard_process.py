"""Runs TensorBoard: `python -m … FOLDER --logdir_spec FOLDERS FLAGS…`.

FOLDER names the file system of the logs. Logs in an object store are downloaded
once, to a temporary folder. TensorFlow 2.16 comes with a TensorBoard that
imports `pkg_resources`, a module that setuptools no longer has. If it is missing, this
module provides the two functions of it that TensorBoard uses.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from importlib import metadata
from typing import Any

from packaging import version

from strategos.components.files import filesystems, storage, temporary
from strategos.pipeline.view import quiet


class _EntryPoint:
    """An entry point with the method by which `pkg_resources` loads it."""

    def __init__(self, entry: metadata.EntryPoint):
        self.resolve = entry.load


def _iter_entry_points(group: str) -> list[_EntryPoint]:
    return [_EntryPoint(entry) for entry in metadata.entry_points(group=group)]


def provide_pkg_resources() -> None:
    """Installs a substitute for `pkg_resources`, if setuptools has none."""
    if importlib.util.find_spec("pkg_resources"):
        return
    module: Any = types.ModuleType("pkg_resources")
    module.iter_entry_points = _iter_entry_points
    module.parse_version = version.parse
    sys.modules["pkg_resources"] = module


def main() -> None:
    """Runs TensorBoard with the flags of the command line."""
    root = sys.argv.pop(1)
    quiet.hush()  # TensorBoard imports TensorFlow in any case
    with contextlib.ExitStack() as stack:
        if filesystems.is_remote(root):
            folder = stack.enter_context(temporary.folder())
            at = sys.argv.index("--logdir_spec") + 1
            sys.argv[at] = ",".join(
                _local(each, folder) for each in sys.argv[at].split(",")
            )
        provide_pkg_resources()
        from tensorboard.main import run_main

        run_main()


def _local(logs: str, folder: str) -> str:
    """Downloads the logs `RUN:URL`; returns `RUN:FOLDER`. A path stays as it is."""
    run, _, url = logs.partition(":")
    if not filesystems.is_remote(url):
        return logs
    target = f"{folder}/{run}"
    with contextlib.suppress(FileNotFoundError):  # nothing was logged
        storage.get(url, target)
    return f"{run}:{target}"


if __name__ == "__main__":
    main()
