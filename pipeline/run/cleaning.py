"""Finds and removes artifacts and local files that are no longer needed.

Kept at any age: all artifacts of the newest runs that made a model and of all runs
since; all artifacts of the runs that led to a version that still exists. Everything
made after a given time is kept too.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.files import trees
from strategos.components.files.filesystems import is_remote
from strategos.components.push_targets import targets
from strategos.pipeline.history.contexts import pipelines, run_contexts, started
from strategos.pipeline.history.store import (
    Store,
    properties,
    pushed_models,
    reads_store,
)
from strategos.pipeline.made_from import record
from strategos.pipeline.root import RUN_CONTEXT
from strategos.pipeline.root.state import state_folder

if TYPE_CHECKING:
    from collections.abc import Set

_MADE = ("blessed", "finished")
_COMPILED = 10  # Number of compiled pipelines that stay.
_PRESENT = (
    *(mlmd.Artifact.UNKNOWN, mlmd.Artifact.LIVE),
    mlmd.Artifact.MARKED_FOR_DELETION,  # by a clean that was killed
)


@dataclass(frozen=True)
class Item:
    """One folder or file to remove.

    Attributes:
      kind: The artifact's type, or `log`, `checkpoint`, `remains`, `compiled`,
        `statistics` (of spans), `sums` (of evaluations), `states` (of an analysis),
        `code` (of runs).
      path: Its path or URL.
      bytes: Its size.
      artifact: The artifact's id in ML Metadata; 0 for other kinds.
    """

    kind: str
    path: str
    bytes: int
    artifact: int = 0


@reads_store
def find(
    store: Store, keep: int, before: float, serving: Collection[str] = ()
) -> list[Item]:
    """Finds folders and files that can be removed from a root and its local state.

    Args:
      store: The root's ML Metadata.
      keep: For each pipeline and target, number of newest runs with a model that keep
        their artifacts.
      before: Unix seconds; everything that was made later stays.
      serving: The folders of pushes, to recognize versions that were moved there.

    Raises:
      UserError: An object store cannot be read.
    """
    tree, local = (
        trees.of(str(store.root)),
        trees.LocalTree(str(state_folder(str(store.root)))),
    )
    recorded = store.mlmd.get_artifacts()
    paths = {each.id: _real(each.uri) for each in recorded}
    artifacts = [a for a in recorded if paths[a.id].startswith(f"{tree.root}/")]
    if not artifacts:  # a database of another root, which knows nothing of this one
        return []
    runs = kept_runs(store, keep, before, serving)
    kept = _artifacts_of(store, runs)
    items = [
        Item(artifact.type, path, tree.size(path), artifact.id)
        for artifact in artifacts
        if artifact.id not in kept
        and artifact.state in _PRESENT
        and artifact.create_time_since_epoch < before * 1000
        and _is_here(store, artifact, path := paths[artifact.id])
    ]
    known = {_place(artifact.uri) for artifact in recorded}
    names = [each.name for each in store.mlmd.get_contexts_by_type("pipeline")]
    for place, leftovers in (
        (tree, _remains(tree, names, known)),
        (local, _state(local, runs)),
    ):
        for kind, path in leftovers:
            if place.touched(path) < before:
                items.append(Item(kind, path, place.size(path)))
    return items


def remove(store: Store, items: Iterable[Item]) -> None:
    """Removes the items from `find`; the caller holds the root's lock.

    Artifacts are marked in ML Metadata first, so that no cache entry ever names a
    partly removed folder. Their records stay, in the state DELETED.

    Args:
      store: The root's ML Metadata.
      items: From `find`, under the same lock.

    Raises:
      UserError: An object store rejects the removal.
    """
    items = list(items)
    ids = [item.artifact for item in items if item.artifact]
    _mark(store, ids, mlmd.Artifact.MARKED_FOR_DELETION)
    for item in items:
        trees.remove(item.path)
    _mark(store, ids, mlmd.Artifact.DELETED)


@reads_store
def kept_runs(
    store: Store, keep: int, before: float, serving: Collection[str] = ()
) -> set[str]:
    """The ids of the runs that keep their artifacts.

    Args:
      store: The root's ML Metadata.
      keep: As for `find`.
      before: As for `find`.
      serving: As for `find`.
    """
    return _newest_runs(store, keep, before) | _runs_of_versions(store, serving)


def _newest_runs(store: Store, keep: int, before: float) -> set[str]:
    """The ids of the runs to keep: newer than `before`, or among the last `keep`."""
    contexts = run_contexts(store)
    names = pipelines(store, contexts)
    made: Counter[tuple[str, str]] = Counter()
    kept = set()
    for context in contexts:
        pipeline = names[context.name]
        facts = properties(context)
        own = pipeline, facts.get("target", "")
        if made[own] < keep or started(context) >= before:
            kept.add(context.name)
        made[own] += facts.get("outcome") in _MADE and not facts.get("part")
    return kept


def _runs_of_versions(store: Store, serving: Collection[str]) -> set[str]:
    """The ids of the runs that led to versions that exist in any target.

    Of object stores only `serving` is listed: versions in others count as existing, and
    so do those in a folder of `serving` that is missing, which may not be mounted.
    """
    exists = {each: targets.of(each).versions() for each in filter(is_remote, serving)}
    away = {each for each in serving if not (is_remote(each) or os.path.isdir(each))}
    there = []
    for artifact in pushed_models(store):
        path = properties(artifact)["pushed_destination"]
        folder, name = os.path.split(path)
        if is_remote(path):
            is_there = folder not in exists or int(name) in exists[folder]
        else:
            is_there = os.path.exists(path) or folder in away
        if is_there or any(
            os.path.exists(os.path.join(each, name)) for each in serving
        ):
            there.append(artifact.id)
    executions = {event.execution_id for event in store.upstream(*there)}
    places = store.contexts_of(executions).values()
    return {place[RUN_CONTEXT] for place in places if RUN_CONTEXT in place}


def _artifacts_of(store: Store, runs: Iterable[str]) -> set[int]:
    """The ids of all artifacts that runs made, read or took from the cache."""
    executions = []
    for run in runs:
        context = store.mlmd.get_context_by_type_and_name(RUN_CONTEXT, run)
        executions += store.mlmd.get_executions_by_context(context.id)
    ids = [execution.id for execution in executions]
    events = store.mlmd.get_events_by_execution_ids(ids) if ids else []
    return {event.artifact_id for event in events}


def _remains(
    tree: trees.Tree, pipelines: Iterable[str], known: Set[str]
) -> Iterator[tuple[str, str]]:
    """Yields (kind, path) without a record in ML Metadata, e.g. checkpoints."""
    for name in pipelines:
        for node in tree.folders(f"{tree.root}/{name}"):
            for kind in tree.folders(f"{node}/.system"):
                yield from (("remains", path) for path in tree.folders(kind))
            outputs = [path for path in tree.folders(node) if not _is_hidden(path)]
            for output in outputs:
                checkpoints = output.endswith(f"/{node_ids.TRAINER}/checkpoints")
                for path in tree.folders(output):
                    if _place(path) not in known:
                        yield "checkpoint" if checkpoints else "remains", path


def _is_here(store: Store, artifact: mlmd.Artifact, path: str) -> bool:
    """Whether an artifact is of this root, not of another root with its path."""
    if store.is_local or is_remote(path):
        return True
    return os.path.lexists(path) or artifact.state == mlmd.Artifact.MARKED_FOR_DELETION


def _place(path: str) -> str:
    """PIPELINE/NODE/OUTPUT/ID: names an output independent of the root's path."""
    return "/".join(path.split("/")[-4:])


def _real(uri: str) -> str:
    """A path without links in the folders above it; a URL as it is."""
    folder, name = os.path.split(uri)
    return uri if is_remote(uri) else f"{_real_folder(folder)}/{name}"


_real_folder = functools.lru_cache(maxsize=1000)(os.path.realpath)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(".")


def _state(tree: trees.LocalTree, runs: Set[str]) -> Iterator[tuple[str, str]]:
    """Logs of runs, compiled pipelines, copied checkpoints, and measurements."""
    for path in tree.folders(f"{tree.root}/runs"):
        if os.path.basename(path) not in runs:
            yield "log", path
    yield from (("code", path) for path in record.unused(Path(tree.root), runs))
    # Pipelines, and the last request of each; specifications of components.
    for pattern in ("*.pb", "*.done", "*.json"):
        compiled = map(str, Path(tree.root, "ir").glob(pattern))
        for path in sorted(compiled, key=tree.touched)[:-_COMPILED]:
            yield "compiled", path
    # Of trainings under a root in an object store.
    for checkpoints in Path(tree.root, "copies").rglob(
        f"{node_ids.TRAINER}/checkpoints"
    ):
        yield from (("checkpoint", str(path)) for path in checkpoints.iterdir())
    for folder, kind in (
        ("span-statistics", "statistics"),
        ("evaluation-sums", "sums"),
        ("analysis-states", "states"),
    ):
        yield from ((kind, str(file)) for file in Path(tree.root, folder).glob("*"))


def _mark(store: Store, ids: list[int], state: int) -> None:
    artifacts = store.mlmd.get_artifacts_by_id(ids) if ids else []
    for artifact in artifacts:
        artifact.state = state
    if artifacts:
        store.mlmd.put_artifacts(artifacts)
