"""The identity of a history of runs, and the format in which it is kept.

Manifests of pushed versions name the identity. Both are in ML Metadata, so they move
with a root, and are the same for all machines that use one server.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ml_metadata

FORMAT = 1
"""Increased when an older Strategos would misread the records of a newer one."""

_TYPE, _FORMAT = "strategos.Root", "format"


def of(store: ml_metadata.MetadataStore) -> str:
    """Returns the identity, which the first call makes.

    Args:
      store: ML Metadata.
    """
    from ml_metadata.proto import metadata_store_pb2

    contexts = store.get_contexts_by_type(_TYPE)
    if not contexts:
        kind = store.put_context_type(metadata_store_pb2.ContextType(name=_TYPE))
        name = uuid.uuid4().hex[:12]
        context = metadata_store_pb2.Context(type_id=kind, name=name)
        context.custom_properties[_FORMAT].int_value = FORMAT
        store.put_contexts([context])
        contexts = store.get_contexts_by_type(_TYPE)
    # The first one, should two machines have begun at the same time.
    return min(contexts, key=lambda context: context.id).name


def written_format(store: ml_metadata.MetadataStore) -> int:
    """Returns the format of a history; 0 for one of before the first format.

    Args:
      store: ML Metadata.
    """
    contexts = store.get_contexts_by_type(_TYPE)
    formats = [each.custom_properties[_FORMAT].int_value for each in contexts]
    return max(formats, default=0)
