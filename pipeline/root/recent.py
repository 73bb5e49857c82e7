"""Reads the newest records of ML Metadata first, without reading all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from strategos.pipeline.root import RUN_CONTEXT

if TYPE_CHECKING:
    import ml_metadata
    from ml_metadata.proto import metadata_store_pb2 as mlmd

_PAGE = 500  # Records of all types that are read first: of some 25 runs.


def contexts(
    store: ml_metadata.MetadataStore, type: str, every: bool = True
) -> Iterator[mlmd.Context]:
    """Yields the contexts of a type, the newest first; reads the rest only if needed.

    Args:
      store: ML Metadata.
      type: The type's name.
      every: Whether to go on after the newest records of all types.
    """
    yield from _newest(store.get_contexts, store.get_contexts_by_type, type, every)


def runs(store: ml_metadata.MetadataStore) -> Iterator[mlmd.Context]:
    """Yields the contexts of runs in the same way.

    Args:
      store: ML Metadata.
    """
    yield from contexts(store, RUN_CONTEXT)


def artifacts(store: ml_metadata.MetadataStore, type: str) -> Iterator[mlmd.Artifact]:
    """Yields the artifacts of a type in the same way.

    Args:
      store: ML Metadata.
      type: The type's name.
    """
    yield from _newest(store.get_artifacts, store.get_artifacts_by_type, type)


def last_id(page: Callable[..., list[Any]]) -> int:
    """The largest id of a kind of record; 0 without any.

    Args:
      page: A method of ML Metadata's store: `get_contexts` or `get_artifacts`.
    """
    from ml_metadata.metadata_store import ListOptions, OrderByField

    order = ListOptions(limit=1, order_by=OrderByField.ID, is_asc=False)
    return max((each.id for each in page(list_options=order)), default=0)


def _newest(
    page: Callable[..., list[Any]],
    of_type: Callable[[str], list[Any]],
    type: str,
    every: bool = True,
) -> Iterator[Any]:
    from ml_metadata.metadata_store import ListOptions, OrderByField

    order = ListOptions(limit=_PAGE, order_by=OrderByField.ID, is_asc=False)
    newest = page(list_options=order)
    yield from (each for each in newest if each.type == type)
    if every and len(newest) == _PAGE:
        older = [each for each in of_type(type) if each.id < newest[-1].id]
        yield from sorted(older, key=lambda each: each.id, reverse=True)
