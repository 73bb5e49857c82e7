"""Corrects the paths in the history of a root that was moved.

ML Metadata names artifacts by absolute paths. After a root with its SQLite file was
moved or copied, the paths still name the former place: nothing, or the artifacts of a
new root there. The first command that opens the history at the new place corrects them.

TFX's cache compares the paths of inputs, so nodes that read artifacts run once more;
nodes that read only files outside of the root (the data, the schema) stay cached.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_metadata

from strategos.components.errors import BadInputError
from strategos.pipeline.root import RUN_CONTEXT, lock

_LOG = re.compile(r"(/.*)/\.strategos/runs/[^/]+/log\.txt")


def follow(store: ml_metadata.MetadataStore, root: str | Path) -> None:
    """Corrects the paths in the history of `root` if it was moved, and reports that.

    Args:
      store: ML Metadata of this root alone, whose lock is held.
      root: A local root.
    """
    former, here = _former(store), os.path.realpath(root)
    if former is None or os.path.realpath(former) == here:
        return
    artifacts = [a for a in store.get_artifacts() if _corrected(a, former, here)]
    runs = store.get_contexts_by_type(RUN_CONTEXT)
    store.put_artifacts(artifacts)
    store.put_contexts([run for run in runs if _corrected(run, former, here)])
    print(
        f"strategos: {root} was moved or copied here from {former}; the paths in its "
        "history are now corrected. The next run takes the ingested data from the "
        "cache and runs the later nodes again.",
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
    runs = store.get_contexts_by_type(RUN_CONTEXT)
    for run in sorted(runs, key=lambda run: run.id, reverse=True):
        found = _LOG.fullmatch(run.custom_properties["log"].string_value)
        if found:
            return found[1]
    return None


def _corrected(node: Any, former: str, here: str) -> bool:
    """Corrects the paths of an artifact or a context; returns whether any changed."""
    changed = False
    uri = getattr(node, "uri", "")
    if uri and _is_below(uri, former):
        node.uri, changed = here + uri[len(former) :], True
    for value in _values(node):
        text = value.string_value
        if _is_below(text, former):
            value.string_value, changed = here + text[len(former) :], True
    return changed


def _values(node: Any) -> Iterable[Any]:
    return [*node.properties.values(), *node.custom_properties.values()]


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")
