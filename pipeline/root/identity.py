"""The identity of a history of runs, by which manifests of pushed versions name it.

It is kept in ML Metadata, so it moves with a root and is one for all machines that use
the same server.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from ml_metadata.proto import metadata_store_pb2

if TYPE_CHECKING:
    import ml_metadata

_TYPE = "strategos.Root"


def of(store: ml_metadata.MetadataStore) -> str:
    """Returns the identity, which the first call makes.

    Args:
      store: ML Metadata.
    """
    found = store.get_contexts_by_type(_TYPE)
    if not found:
        kind = store.put_context_type(metadata_store_pb2.ContextType(name=_TYPE))
        name = uuid.uuid4().hex[:12]
        store.put_contexts([metadata_store_pb2.Context(type_id=kind, name=name)])
        found = store.get_contexts_by_type(_TYPE)
    # The first one, should two machines have begun at the same time.
    return min(found, key=lambda context: context.id).name
