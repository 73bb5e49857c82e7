"""The contents of artifacts: recorded when made, compared before they are reused.

TFX takes an artifact from its cache if its folder exists, whatever is in it. So the
digest of each file is a property of the artifact, and a cached artifact that has other
files is withdrawn: the node runs again. A file is read again only if its status changed
since it was last hashed (`digests`); of an object in a store, size and time count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components.files import digests, reading
from strategos.components.files.filesystems import is_remote
from strategos.components.wording import abridged, counted
from strategos.pipeline.root.state import make_state, state_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import ml_metadata

_CONTENT = "content"
_SHOWN = 2
# Its folder is a model server's: other files may be put there, and Pusher looks itself
# whether its version still serves.
_NOT_OURS = "PushedModel"


@dataclass(frozen=True)
class Damage:
    """An artifact that no longer has the content that it was made with.

    Attributes:
      artifact: The artifact.
      differences: What differs, for a message.
    """

    artifact: mlmd.Artifact
    differences: str


def record(store: ml_metadata.MetadataStore, execution: int, root: str) -> None:
    """Records the contents of an execution's outputs.

    Args:
      store: ML Metadata.
      execution: Id of an execution that has just been published.
      root: The pipeline root; a cache of digests is in its local state.
    """
    made = _outputs(store, execution)
    for artifact, found in zip(made, _contents(made, root), strict=True):
        artifact.custom_properties[_CONTENT].string_value = json.dumps(found)
    if made:
        store.put_artifacts(made)


def damaged(
    store: ml_metadata.MetadataStore, execution: int, root: str
) -> list[Damage]:
    """Compares the outputs of an execution with what was recorded.

    Artifacts that were made before contents were recorded count as whole, and are
    recorded now.

    Args:
      store: ML Metadata.
      execution: Id of an execution that was taken from the cache.
      root: As for `record`.
    """
    outputs = _outputs(store, execution)
    contents = _contents(outputs, root)
    found = []
    for artifact, content in zip(outputs, contents, strict=True):
        recorded = artifact.custom_properties[_CONTENT].string_value
        if not recorded:
            artifact.custom_properties[_CONTENT].string_value = json.dumps(content)
            store.put_artifacts([artifact])
        elif differences := _differences(json.loads(recorded), content):
            found.append(Damage(artifact, differences))
    return found


def withdraw(store: ml_metadata.MetadataStore, damages: Sequence[Damage]) -> None:
    """Marks artifacts so that no run takes them any more.

    Args:
      store: ML Metadata.
      damages: From `damaged`.
    """
    for damage in damages:
        damage.artifact.state = mlmd.Artifact.MARKED_FOR_DELETION
    store.put_artifacts([damage.artifact for damage in damages])


def _outputs(store: ml_metadata.MetadataStore, execution: int) -> list[mlmd.Artifact]:
    events = store.get_events_by_execution_ids([execution])
    ids = [event.artifact_id for event in events if event.type == mlmd.Event.OUTPUT]
    found = store.get_artifacts_by_id(ids) if ids else []
    return [artifact for artifact in found if artifact.type != _NOT_OURS]


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
        return [f"{x.size} {x.changed}" for x in reading.statuses(paths)]
    return [digest[:16] for digest in digests.digests(paths, memo)]


def _files(uri: str) -> list[str]:
    if is_remote(uri):
        return reading.below(uri)[0]
    if os.path.isfile(uri):
        return [uri]
    walked = os.walk(uri)
    return sorted(os.path.join(folder, x) for folder, _, names in walked for x in names)


def _differences(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    names = sorted(recorded.keys() | found.keys())
    differing = [x or "it" for x in names if recorded.get(x) != found.get(x)]
    if not differing:
        return ""
    gone = all(x not in found for x in differing)
    verb = "missing" if gone else "changed"
    return f"{abridged(differing, _SHOWN)} {verb} ({counted(len(names), 'file')})"
