"""Carries TFX's cache over to the new place of a root that was moved.

TFX names a cache entry by a hash of all dependencies of a node's execution, including
the paths of its inputs (`tfx.orchestration.portable.cache_utils`). All of them can be
read from ML Metadata and the compiled pipeline, so the same hash can be computed for
the corrected paths. An execution is carried over only if this computation yields its
present hash; any other node runs once more.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_metadata
from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.pipeline.root import recent
from strategos.pipeline.root.state import state_folder

if TYPE_CHECKING:
    from tfx.proto.orchestration import pipeline_pb2

_CACHE_CONTEXT = "execution_cache"  # TFX's type of context for a cache entry
_RUNS = 10  # Newest runs; the next run may take their results.
_INPUTS = (mlmd.Event.INPUT, mlmd.Event.DECLARED_INPUT)


@dataclass(frozen=True)
class CacheEntry:
    """An execution that TFX finds by a cache key.

    Attributes:
      execution: The execution's id.
      node: Hashed parts of the node: pipeline, id and executor.
      inputs: Ids of the input artifacts by key, in order.
      outputs: Keys of the outputs.
      parameters: Execution properties.
    """

    execution: int
    node: tuple[bytes, ...]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Any]

    def key(
        self, store: ml_metadata.MetadataStore, parameters: Mapping[str, Any]
    ) -> str:
        """Computes the key by TFX's rule, from the artifacts in the store.

        Args:
          store: ML Metadata.
          parameters: Execution properties.
        """
        digest = hashlib.sha256(b"".join(self.node))
        for name, ids in sorted(self.inputs.items()):
            digest.update(name.encode())
            known = {each.id: each for each in store.get_artifacts_by_id(ids)}
            for artifact in (known[each] for each in ids):
                digest.update(artifact.SerializeToString(deterministic=True))
        for name in sorted(self.outputs):
            digest.update(name.encode() + _no_artifact())
        for name, value in sorted(parameters.items()):
            digest.update(name.encode() + str(value).encode())
        return digest.hexdigest()


def entries(store: ml_metadata.MetadataStore, root: str | Path) -> list[CacheEntry]:
    """Reads the cache entries of the newest runs, before their paths are corrected.

    Args:
      store: ML Metadata of this root alone.
      root: The root at its new place.
    """
    nodes = _nodes(Path(root))
    by_key: dict[str, CacheEntry] = {}
    for run in itertools.islice(recent.runs(store), _RUNS if nodes else 0):
        for execution in store.get_executions_by_context(run.id):
            contexts = store.get_contexts_by_execution(execution.id)
            by_type = {context.type: context for context in contexts}
            cache, node = by_type.get(_CACHE_CONTEXT), by_type.get("node")
            if not cache or cache.name in by_key or not node or node.name not in nodes:
                continue
            entry = _entry(store, execution, cache, nodes[node.name])
            if entry.key(store, entry.parameters) == cache.name:
                by_key[cache.name] = entry
    return list(by_key.values())


def carry_over(
    store: ml_metadata.MetadataStore,
    carried: Sequence[CacheEntry],
    correct: Callable[[str], str],
) -> None:
    """Adds the cache keys that follow from the corrected paths.

    Args:
      store: ML Metadata, its artifacts corrected.
      carried: From `entries`.
      correct: Corrects the paths in a text.
    """
    kind = store.get_context_type(_CACHE_CONTEXT).id if carried else 0
    for entry in carried:
        changed = {}
        for name, value in entry.parameters.items():
            if isinstance(value, str) and correct(value) != value:
                changed[name] = correct(value)
        key = entry.key(store, {**entry.parameters, **changed})
        context = store.get_context_by_type_and_name(_CACHE_CONTEXT, key)
        if context is None:
            made = mlmd.Context(type_id=kind, name=key)
            for name, value in changed.items():
                made.custom_properties[name].string_value = value
            (id,) = store.put_contexts([made])
        link = mlmd.Association(
            context_id=context.id if context else id, execution_id=entry.execution
        )
        store.put_attributions_and_associations([], [link])


def _entry(
    store: ml_metadata.MetadataStore,
    execution: mlmd.Execution,
    cache: mlmd.Context,
    node: tuple[tuple[bytes, ...], tuple[str, ...]],
) -> CacheEntry:
    read: dict[str, list[tuple[int, int]]] = {}
    for event in store.get_events_by_execution_ids([execution.id]):
        if event.type in _INPUTS and len(event.path.steps) == 2:
            key, index = event.path.steps
            read.setdefault(key.key, []).append((index.index, event.artifact_id))
    # The cache context has the parameters that an earlier move corrected.
    sources = (execution.properties, execution.custom_properties)
    parameters = {
        name: getattr(value, value.WhichOneof("value"))
        for source in (*sources, cache.custom_properties)
        for name, value in source.items()
    }
    inputs = {key: tuple(id for _, id in sorted(ids)) for key, ids in read.items()}
    return CacheEntry(execution.id, node[0], inputs, node[1], parameters)


def _nodes(root: Path) -> dict[str, tuple[tuple[bytes, ...], tuple[str, ...]]]:
    """The hashed parts and the outputs of each node, by `PIPELINE.NODE`."""
    from tfx.proto.orchestration import pipeline_pb2

    nodes: dict[str, tuple[tuple[bytes, ...], tuple[str, ...]]] = {}
    for path in sorted((state_folder(root) / "ir").glob("*.pb"), key=_changed):
        ir = pipeline_pb2.Pipeline.FromString(path.read_bytes())
        nodes.update(_nodes_of(ir))  # newer ones replace older ones
    return nodes


def _nodes_of(
    ir: pipeline_pb2.Pipeline,
) -> Iterator[tuple[str, tuple[tuple[bytes, ...], tuple[str, ...]]]]:
    from tfx.proto.orchestration import pipeline_pb2

    deployment = pipeline_pb2.IntermediateDeploymentConfig()
    ir.deployment_config.Unpack(deployment)
    pipeline = ir.pipeline_info.SerializeToString(deterministic=True)
    for node in (each.pipeline_node for each in ir.nodes):
        name = node.node_info.id
        parts = (
            pipeline,
            node.node_info.SerializeToString(deterministic=True),
            deployment.executor_specs[name].value,
        )
        yield f"{ir.pipeline_info.id}.{name}", (parts, tuple(node.outputs.outputs))


def _no_artifact() -> bytes:
    """An output as TFX hashes it: without place and name."""
    artifact = mlmd.Artifact(uri="", name="")
    artifact.custom_properties["name"].string_value = ""
    return artifact.SerializeToString(deterministic=True)


def _changed(path: Path) -> float:
    return path.stat().st_mtime
