"""The model in production, and which model a candidate has to be compared with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategos.components.baseline_model import NOTHING

if TYPE_CHECKING:
    import ml_metadata
    from tfx.proto.orchestration import pipeline_pb2


@dataclass(frozen=True)
class Production:
    """A pushed version whose folder exists.

    Attributes:
      path: The SavedModel's folder.
      version: Its number, unix seconds of the push.
      candidate: Key of what it was made from, see `candidate_key`.
      baseline: Path of the model that it was judged against, or `NOTHING`.
    """

    path: str
    version: int
    candidate: str
    baseline: str


def newest(store: ml_metadata.MetadataStore, destination: str) -> Production | None:
    """The newest version pushed to `destination` whose folder exists."""
    pushed = []
    for artifact in store.get_artifacts_by_type("PushedModel"):
        properties = artifact.custom_properties
        path = properties["pushed_destination"].string_value
        if path and Path(path).parent == Path(destination) and Path(path).is_dir():
            pushed.append(
                Production(
                    path=path,
                    version=int(Path(path).name),
                    candidate=properties["candidate"].string_value,
                    baseline=properties["baseline"].string_value,
                )
            )
    return max(pushed, key=lambda production: production.version, default=None)


def baseline(production: Production | None, candidate: str, fresh: bool) -> str:
    """The path of the model to compare the candidate with; `NOTHING` for none.

    The model in production; but where that was made from just what this run is made
    from, it is this very candidate, and the baseline is what it was judged against. So
    an unchanged run stays cached.

    Args:
      production: What serves now.
      candidate: This run's `candidate_key`.
      fresh: The candidate is trained anew even if nothing changed (`--no-cache`), so
        it is another model than the one in production.
    """
    if production is None:
        return NOTHING
    if production.candidate == candidate and not fresh:
        return production.baseline
    return production.path


def candidate_key(ir: pipeline_pb2.Pipeline) -> str:
    """A hash of all that determines the trained model: the Trainer and what it needs.

    Args:
      ir: The compiled pipeline, runtime parameters substituted.
    """
    nodes = {node.pipeline_node.node_info.id: node.pipeline_node for node in ir.nodes}
    digest = hashlib.sha256()
    for name in sorted(_upstream(nodes, "Trainer")):
        digest.update(name.encode() + b"\0")
        digest.update(nodes[name].parameters.SerializeToString(deterministic=True))
    return digest.hexdigest()[:16]


def _upstream(nodes: dict[str, Any], name: str) -> set[str]:
    found, todo = set(), [name]
    while todo:
        current = todo.pop()
        if current not in found:
            found.add(current)
            todo.extend(nodes[current].upstream_nodes)
    return found
