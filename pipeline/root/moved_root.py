"""Corrects the paths in the history of a root that was moved.

ML Metadata names artifacts by absolute paths. After a root with its SQLite file was
moved or copied, the paths still name the former place: nothing, or the artifacts of a
new root there. The first command that opens the history at the new place corrects
them, and the cache keys that contain them, so that the next run is cached.

A path outside of the root, e.g. of a pushed version, is corrected if it moved along
with the root: if it exists at the same place relative to the root.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_metadata

from strategos.components.errors import BadInputError
from strategos.components.files import commit
from strategos.pipeline.root import RUN_CONTEXT, lock, moved_cache, recent

_LOG = re.compile(r"(/.*)/\.strategos/runs/[^/]+/log\.txt")
_QUOTED = re.compile(r'"(/[^"\\]*)"')


def follow(store: ml_metadata.MetadataStore, root: str | Path) -> None:
    """Corrects the paths in the history of `root` if it was moved, and reports that.

    Args:
      store: ML Metadata of this root alone; the caller holds the root's lock.
      root: A local root.
    """
    former, here = _former(store), os.path.realpath(root)
    if former is None or os.path.realpath(former) == here:
        return
    move = _Move(former, here)
    cached = moved_cache.entries(store, root)
    artifacts = [each for each in store.get_artifacts() if move.corrects(each)]
    store.put_artifacts(artifacts)
    for artifact in artifacts:
        move.correct_link(artifact.uri)
    moved_cache.carry_over(store, cached, move.text)
    # The runs at last: they hold the former place, should this be interrupted.
    runs = store.get_contexts_by_type(RUN_CONTEXT)
    store.put_contexts([run for run in runs if move.corrects(run)])
    print(
        f"strategos: {root} was moved or copied here from {former}; the paths in its "
        "history are now corrected",
        file=sys.stderr,
    )


def follow_if_free(store: ml_metadata.MetadataStore, root: str | Path) -> None:
    """Calls `follow`, unless a run holds the root's lock or it cannot be written.

    Args:
      store: ML Metadata of this root alone.
      root: A local root.
    """
    former = _former(store)
    if former is None or os.path.realpath(former) == os.path.realpath(root):
        return
    try:
        with lock.hold(root, run_id="history-correction"):
            follow(store, root)
    except BadInputError:
        return


def _former(store: ml_metadata.MetadataStore) -> str | None:
    """The path of the root in its last run, from that run's log; None if unknown."""
    for run in recent.runs(store):
        match = _LOG.fullmatch(run.custom_properties["log"].string_value)
        if match:
            return match[1]
    return None


class _Move:
    """A move of a root.

    Args:
      former: The root's former path.
      here: Its present one.
    """

    def __init__(self, former: str, here: str):
        self._former, self._here = former, here
        self._path = functools.lru_cache(maxsize=10_000)(self._corrected)

    def corrects(self, node: Any) -> bool:
        """Corrects an artifact or a context; returns whether any path changed."""
        changed = False
        uri = getattr(node, "uri", "")
        if uri and self._path(uri) != uri:
            node.uri, changed = self._path(uri), True
        for value in _values(node):
            text = value.string_value
            if self.text(text) != text:
                value.string_value, changed = self.text(text), True
        return changed

    def text(self, text: str) -> str:
        """Corrects a path, or the paths in JSON."""
        if text.startswith("/"):
            return self._path(text)
        if text.startswith(("{", "[")):
            return _QUOTED.sub(lambda match: f'"{self._path(match[1])}"', text)
        return text

    def correct_link(self, uri: str) -> None:
        """Makes a symbolic link point to the present place of its target."""
        if not os.path.islink(uri):
            return
        target = os.readlink(uri)
        if self._path(target) != target:
            with commit.aside(uri) as link:
                link.symlink_to(self._path(target))

    def _corrected(self, path: str) -> str:
        if path.startswith(f"{self._former}/"):
            return self._here + path[len(self._former) :]
        if not path.startswith("/") or "\0" in path:
            return path
        beside = os.path.relpath(path, self._former)
        moved = os.path.normpath(os.path.join(self._here, beside))
        folder = os.path.dirname(moved)
        # A version may have been removed since; its folder shows where it would be.
        is_lost = not os.path.exists(path) and os.path.isdir(folder)
        return moved if os.path.exists(moved) or is_lost else path


def _values(node: Any) -> Iterable[Any]:
    return [*node.properties.values(), *node.custom_properties.values()]
