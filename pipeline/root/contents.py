"""The contents of artifacts: recorded when made, compared before they are reused.

TFX takes an artifact from its cache if its folder exists, even with other files in it.
So the digest of each file is a property of the artifact, and the artifacts that a run
would take from the cache are compared before its first node: an artifact with other
files is withdrawn, and its node runs again. A file is read again only if its status
changed since it was last hashed (`digests`); of an object in a store, size and time
count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.files import digests, listing, storage
from strategos.components.files.filesystems import is_remote
from strategos.components.push_targets import predictions
from strategos.components.wording import abridged, counted
from strategos.pipeline.root.state import make_state, state_folder

if TYPE_CHECKING:
    import ml_metadata

_CONTENT, _KEY = "content", "node_key"  # the latter also a type of contexts
_SHOWN = 2
# Its folder is a model server's: other files may be put there, and Pusher looks itself
# whether its version still serves.
_NOT_OURS = "PushedModel"


@dataclass(frozen=True)
class Damage:
    """An artifact that no longer has the content that it was made with.

    Attributes:
      artifact: The artifact.
      differences: The differing files, for a message.
    """

    artifact: mlmd.Artifact
    differences: str

    def __str__(self) -> str:
        return f"{self.artifact.uri} was damaged after it was made: {self.differences}"


def record(
    store: ml_metadata.MetadataStore, execution: int, root: str, key: str
) -> None:
    """Records the contents of an execution's outputs, as far as they are unknown.

    Artifacts that were made before contents were recorded count as whole.

    Args:
      store: ML Metadata.
      execution: Id of an execution that has been published.
      root: The pipeline root; a cache of digests is in its local state.
      key: The node's key, of `caching.node_keys`.
    """
    events = store.get_events_by_execution_ids([execution])
    ids = [event.artifact_id for event in events if event.type == mlmd.Event.OUTPUT]
    unknown = [
        artifact
        for artifact in (store.get_artifacts_by_id(ids) if ids else ())
        if artifact.type != _NOT_OURS and _KEY not in artifact.custom_properties
    ]
    for artifact, content in zip(unknown, _contents(unknown, root), strict=True):
        artifact.custom_properties[_CONTENT].string_value = json.dumps(content)
        artifact.custom_properties[_KEY].string_value = key
    if unknown:
        store.put_artifacts(unknown)
        context = _context(store, key) or _new_context(store, key)
        links = [
            mlmd.Attribution(artifact_id=x.id, context_id=context) for x in unknown
        ]
        store.put_attributions_and_associations(links, [])


def damaged(
    store: ml_metadata.MetadataStore, keys: Collection[str], root: str
) -> list[Damage]:
    """Finds damaged artifacts.

    Args:
      store: ML Metadata.
      keys: The keys of the nodes; their outputs are compared.
      root: As for `record`.

    Raises:
      OSError: A file, or an object store, cannot be read.
    """
    # By contexts, because the newer ML Metadata has no filter by properties.
    contexts = [_context(store, key) for key in sorted(set(keys))]
    listed = [store.get_artifacts_by_context(each) for each in contexts if each]
    of_id = {artifact.id: artifact for some in listed for artifact in some}
    recorded = [x for x in of_id.values() if x.state == mlmd.Artifact.LIVE]
    damages = []
    for artifact, content in zip(recorded, _contents(recorded, root), strict=True):
        made = json.loads(artifact.custom_properties[_CONTENT].string_value)
        if differences := _differences(made, content) or _lost(artifact):
            damages.append(Damage(artifact, differences))
    return damages


def withdraw(store: ml_metadata.MetadataStore, damages: Sequence[Damage]) -> None:
    """Marks damaged artifacts, so that no run takes them any more.

    Args:
      store: ML Metadata.
      damages: From `damaged`.
    """
    for damage in damages:
        damage.artifact.state = mlmd.Artifact.MARKED_FOR_DELETION
        store.put_artifacts([damage.artifact])


def _context(store: ml_metadata.MetadataStore, key: str) -> int | None:
    """The id of the context of a node's key; None if nothing was recorded for it."""
    context = store.get_context_by_type_and_name(_KEY, key)
    return context.id if context else None


def _new_context(store: ml_metadata.MetadataStore, key: str) -> int:
    kind = store.put_context_type(mlmd.ContextType(name=_KEY))
    (context,) = store.put_contexts([mlmd.Context(type_id=kind, name=key)])
    return context


def _contents(
    artifacts: Sequence[mlmd.Artifact], root: str
) -> Iterator[dict[str, str]]:
    """The digest of each file of each artifact, by the file's path in its folder."""
    listed = [(each.uri, _files(each.uri)) for each in artifacts]
    memo = state_folder(root) / "artifact-hashes.json"
    make_state(memo.parent)
    paths = [path for _, files in listed for path in files]
    known = dict(zip(paths, _digests(paths, memo), strict=True))
    for uri, files in listed:
        yield {path[len(uri) :].lstrip("/"): known[path] for path in files}


def _digests(paths: Sequence[str], memo: Path) -> list[str]:
    if paths and is_remote(paths[0]):
        return [f"{x.size} {x.changed}" for x in storage.statuses(paths)]
    return [digest[:16] for digest in digests.digests(paths, memo)]


def _files(uri: str) -> list[str]:
    if is_remote(uri):
        return listing.below(uri)[0]
    if os.path.isfile(uri):
        return [uri]
    walked = os.walk(uri)
    paths = (os.path.join(folder, x) for folder, _, names in walked for x in names)
    return sorted(filter(os.path.isfile, paths))  # no dangling links


def _lost(artifact: mlmd.Artifact) -> str:
    """The missing part of the predictions that a manifest describes; "" for none."""
    if predictions.PREDICTIONS not in artifact.custom_properties:
        return ""
    return predictions.lost(
        artifact.custom_properties[predictions.PREDICTIONS].string_value
    )


def _differences(recorded: Mapping[str, str], now: Mapping[str, str]) -> str:
    names = sorted(recorded.keys() | now.keys())
    differing = [x for x in names if recorded.get(x) != now.get(x)]
    if not differing:
        return ""
    gone = all(x not in now for x in differing)
    what = abridged([x or "the file" for x in differing], _SHOWN)
    verb = "missing" if gone else "changed"
    return f"{what} {verb} (of {counted(len(names), 'file')})"
