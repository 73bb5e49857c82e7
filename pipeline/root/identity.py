"""The identity of a history of runs, and the format in which it is kept.

Manifests of pushed versions name the identity. Both are in ML Metadata, so they move
with a root, and are the same for all machines that use one server.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from strategos.components.errors import BadInputError

if TYPE_CHECKING:
    import ml_metadata

FORMAT = 1
"""Increased when an older Strategos would misread what a newer one has written."""

_TYPE, _FORMAT = "strategos.Root", "format"


def of(store: ml_metadata.MetadataStore) -> str:
    """Returns the identity, which the first call makes.

    Args:
      store: ML Metadata.
    """
    from ml_metadata.proto import metadata_store_pb2

    found = store.get_contexts_by_type(_TYPE)
    if not found:
        kind = store.put_context_type(metadata_store_pb2.ContextType(name=_TYPE))
        name = uuid.uuid4().hex[:12]
        context = metadata_store_pb2.Context(type_id=kind, name=name)
        context.custom_properties[_FORMAT].int_value = FORMAT
        store.put_contexts([context])
        found = store.get_contexts_by_type(_TYPE)
    # The first one, should two machines have begun at the same time.
    return min(found, key=lambda context: context.id).name


def reject_newer(store: ml_metadata.MetadataStore, place: str) -> None:
    """Rejects the history of a Strategos that is newer than this one.

    Args:
      store: ML Metadata.
      place: Where it is, for the message.

    Raises:
      BadInputError: Its format is newer.
    """
    contexts = store.get_contexts_by_type(_TYPE)
    # Roots of before the first format have none.
    formats = [each.custom_properties[_FORMAT].int_value for each in contexts]
    newest = max(formats, default=0)
    if newest > FORMAT:
        raise BadInputError(
            f"{place} was written by a newer Strategos (format {newest}; the one "
            f"installed here reads {FORMAT})",
            remedy="Run the Strategos that wrote it; nothing was changed.",
        )
