"""Finds the pipeline root for commands that read the history.

The first that applies: the root of the named YAML; `--root`; the root of
`pipeline.yaml` in the current folder; the last root that a run of this user used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError, UserError
from strategos.components.files import commit, filesystems
from strategos.components.files.filesystems import is_remote
from strategos.pipeline.config import MAIN_FILE
from strategos.pipeline.root.state import make_state, user_folder

if TYPE_CHECKING:
    from ml_metadata.proto import metadata_store_pb2 as mlmd

    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.store import Store

_KEPT = 50  # Number of roots that are remembered.


@dataclasses.dataclass(frozen=True)
class History:
    """A root's open history.

    Attributes:
      store: The root's ML Metadata.
      pipeline: The name of the pipeline, if a YAML named the root; None for all.
    """

    store: Store
    pipeline: str | None


def _print(line: str) -> None:
    print(line, file=sys.stderr)


@dataclasses.dataclass(frozen=True)
class Place:
    """A root, and the connection that opens its history.

    Attributes:
      root: The root, a path or a URL.
      connection: ML Metadata's.
      config: The effective settings, if a YAML named the root.
      why: Which choice led to this root, for a message.
    """

    root: str
    connection: mlmd.ConnectionConfig
    config: Config | None
    why: str

    @property
    def line(self) -> str:
        """A line that names the root."""
        return _line(self.root, self.why)


def open_history(
    yaml: str | None, root: str | None, announce: Callable[[str], None] = _print
) -> History:
    """Opens the history of a root.

    Args:
      yaml: The YAML on the command line, if any.
      root: The value of `--root`, if any.
      announce: Called with a line that names the root; prints it to stderr by default.

    Raises:
      UserError: The root has no history, or its history cannot be read.
    """
    from strategos.pipeline.history import kubeflow
    from strategos.pipeline.history.store import Store

    if root and not yaml and kubeflow.is_address(root):
        return History(kubeflow.KubeflowStore(root), None)
    location = place(yaml, root)
    announce(location.line)
    store = Store(location.connection, root=location.root)
    return History(store, location.config.name if location.config else None)


def place(yaml: str | None, root: str | None) -> Place:
    """Finds the root of a command that reads the history, without opening it.

    Args:
      yaml: As for `open_history`.
      root: As for `open_history`, but no address of Kubeflow.

    Raises:
      UserError: The settings are invalid, or no root is known.
    """
    if yaml:
        return _of_yaml(yaml, f"of {yaml}")
    if root:
        return _of_root(root, "--root")
    if Path(MAIN_FILE).is_file():
        return _of_yaml(MAIN_FILE, f"of {MAIN_FILE} in this folder")
    return _of_root(_last(), f"the last one used; no {MAIN_FILE} in this folder")


def pipeline_among(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Divides the words of a command that reads the history.

    Args:
      words: For example `RUN pipeline.yaml`, in any order.

    Returns:
      The other words, and the first one that names a YAML, if any.
    """
    pipeline = next((word for word in words if word.endswith((".yaml", ".yml"))), None)
    return [word for word in words if word != pipeline], pipeline


def run_and_pipeline(
    command: str, words: Sequence[str]
) -> tuple[str | None, str | None]:
    """The run and the pipeline that the words after a command name, each None if not.

    Args:
      command: The command, for the message.
      words: The words.

    Raises:
      BadInputError: There are several runs or pipelines among them.
    """
    runs, pipeline = pipeline_among(words)
    if len(runs) > 1:
        raise BadInputError(
            f"strategos {command}: received {' '.join(words)!r}. Name one run and one "
            f"pipeline at most: strategos {command} [RUN] [PIPELINE_YAML]."
        )
    return next(iter(runs), None), pipeline


def that_pushed(path: str) -> History | None:
    """Opens the history with the push of a model; None if no known root pushed it.

    Args:
      path: A pushed version, or a folder of pushed versions.
    """
    from strategos.pipeline.history import lineage
    from strategos.pipeline.history.store import Store
    from strategos.pipeline.root import metadata

    for root in reversed(_known()):
        if is_remote(root):
            continue
        with contextlib.suppress(UserError):
            store = Store(metadata.connection(root), root=root)
            if lineage.is_pushed(store, path):
                _print(_line(root, f"it pushed {path}"))
                return History(store, None)
    return None


def remember(root: str) -> None:
    """Records that a run used `root`, for `open_history`.

    Args:
      root: A path or a URL.
    """
    root = root if is_remote(root) else os.path.realpath(root)
    known = [each for each in _known() if each != root][-_KEPT + 1 :]
    file = _file()
    try:
        make_state(file.parent)
        commit.write(file, "\n".join([*known, root]) + "\n")
    except OSError as error:
        print(
            f"strategos: {file} cannot be written ({error.strerror}), so `strategos "
            f"runs` and `lineage` will not find {root} by themselves: pass the "
            "PIPELINE_YAML or --root, or set XDG_STATE_HOME to a folder that can be "
            "written",
            file=sys.stderr,
        )


def _of_yaml(path: str, why: str) -> Place:
    from strategos.pipeline.config import loading
    from strategos.pipeline.root import metadata, names

    config = names.named(loading.load(path)).config
    return Place(config.run.root, metadata.of(config), config, why)


def _of_root(root: str, why: str) -> Place:
    from strategos.pipeline.root import metadata

    if is_remote(root):
        raise BadInputError(
            f"{root}: the history of a remote root is on the server that its YAML "
            "names: give the PIPELINE_YAML"
        )
    root = os.path.abspath(os.path.expanduser(root))
    return Place(root, metadata.connection(root), None, why)


def _line(root: str, why: str) -> str:
    return f"root {filesystems.short(root)} ({why})"


def _last() -> str:
    known = _known()
    if not known:
        raise BadInputError(
            "no pipeline has run here yet: name a PIPELINE_YAML or --root DIR"
        )
    return known[-1]


def _known() -> list[str]:
    """The roots that runs of this user used, the last one used at the end."""
    try:
        return _file().read_text().splitlines()
    except OSError:
        return []


def _file() -> Path:
    return user_folder() / "known-roots"
