"""The contexts of runs in ML Metadata: one for each run, with facts about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.history.store import Store
from strategos.pipeline.root import RUN_CONTEXT, lease, lock


def run_contexts(store: Store) -> list[mlmd.Context]:
    """The contexts of all runs, newest first."""
    contexts = store.mlmd.get_contexts_by_type(RUN_CONTEXT)
    return sorted(contexts, key=started, reverse=True)


def with_ids(store: Store, ids: Iterable[int]) -> list[mlmd.Context]:
    """The contexts with some ids, in their order; none for an id that is unknown."""
    ids = list(ids)
    contexts = store.mlmd.get_contexts_by_id(ids) if ids else []
    known = {context.id: context for context in contexts}
    return [known[id] for id in ids if id in known]


def started(context: mlmd.Context) -> float:
    """Unix seconds of the start of a run."""
    recorded = context.custom_properties["started"].double_value
    return recorded or context.create_time_since_epoch / 1000


def pipelines(store: Store, runs: Iterable[mlmd.Context]) -> dict[str, str]:
    """The pipeline of each run, by the run's id; "" if unknown."""
    return {context.name: name for context, name in named(store, runs)}


def named(
    store: Store, runs: Iterable[mlmd.Context]
) -> Iterator[tuple[mlmd.Context, str]]:
    """Yields each run with the name of its pipeline; "" if unknown."""
    known = store.mlmd.get_contexts_by_type("pipeline")
    for context in runs:
        name = context.custom_properties["pipeline"].string_value
        if not name and len(known) == 1:
            name = known[0].name
        yield context, name or _pipeline_by_node(store, context)


def _pipeline_by_node(store: Store, context: mlmd.Context) -> str:
    executions = store.mlmd.get_executions_by_context(context.id)
    places = store.contexts_of(execution.id for execution in executions[:1])
    return next((place["pipeline"] for place in places.values()), "")


def running(store: Store) -> list[str]:
    """The ids of the runs in progress: on this root, and of pipelines with a lease."""
    holder = lock.holder(store.root) if store.root else None
    held = [holder] if holder else []
    if not store.is_local:
        held += lease.holders(store.mlmd).values()
    return [each["run_id"] for each in held if "run_id" in each]
