"""The warnings of runs in ML Metadata: written when they come, read for the tables.

A node's warnings are a property of its first output, or of its newest input if it has
no output (a gate): a cache key changes with an artifact's properties, and nodes before
the gate take only older ones. So the table of each later run that takes the node from
the cache has them too. All warnings of a run are also a property of the run, because a
warning may come from a failed node or from no node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ml_metadata.proto import metadata_store_pb2 as mlmd

from strategos.components import node_ids
from strategos.components.wording import first
from strategos.pipeline.history.store import properties

PROPERTY = "warnings"

_MOST = 20  # warnings of a node that are kept
_LENGTH = 1_000  # characters of a warning that are kept


def of_run(events: Iterable[Mapping[str, Any]]) -> str:
    """The value of the run's property.

    Args:
      events: The warnings of a run, from its event file.
    """
    by_node: dict[str, list[str]] = {}
    for event in events:
        by_node.setdefault(event.get("node") or "", []).append(str(event["message"]))
    return json.dumps({node: _abridged(lines) for node, lines in by_node.items()})


def keep(store: Any, execution: int, node: str, messages: Collection[str]) -> None:
    """Adds the warnings of a node to its outputs, in place of earlier warnings.

    Args:
      store: ML Metadata.
      execution: Id of the node's execution, which is complete.
      node: Id of the node.
      messages: Its warnings.
    """
    links = store.get_events_by_execution_ids([execution])
    outputs = [link.artifact_id for link in links if link.type == link.OUTPUT]
    inputs = [link.artifact_id for link in links if link.type == link.INPUT]
    chosen = outputs[:1] or sorted(inputs)[-1:]
    if not chosen or (outputs and not messages):
        return
    (artifact,) = store.get_artifacts_by_id(chosen)
    kept = json.loads(properties(artifact).get(PROPERTY) or "{}")
    known = kept.pop(node, None)
    if messages:
        kept[node] = _abridged(messages)
    if messages or known:
        artifact.custom_properties[PROPERTY].string_value = json.dumps(kept)
        store.put_artifacts([artifact])


def read(
    run: Mapping[str, Any],
    artifacts: Iterable[mlmd.Artifact],
    finished: Collection[str],
    summary: Mapping[str, Any] | None,
) -> tuple[tuple[str, str], ...]:
    """The warnings of a run, also of its cached nodes: (node, message) each.

    Args:
      run: Properties of the run.
      artifacts: The outputs of its nodes, also of cached ones.
      finished: Ids of the nodes that are complete or cached.
      summary: The evaluation's `summary.json`, if it can be read.
    """
    warnings: dict[tuple[str, str], None] = {}
    for artifact in artifacts:
        for node, lines in json.loads(
            properties(artifact).get(PROPERTY) or "{}"
        ).items():
            if node in finished:
                warnings |= dict.fromkeys((node, line) for line in lines)
    for node, lines in json.loads(run.get(PROPERTY) or "{}").items():
        warnings |= dict.fromkeys((node, line) for line in lines)
    evaluated = _abridged((summary or {}).get(PROPERTY) or ())
    warnings |= dict.fromkeys((node_ids.EVALUATOR, line) for line in evaluated)
    return tuple(warnings)


def _abridged(messages: Iterable[str]) -> list[str]:
    distinct = list(dict.fromkeys(messages))
    cut = [x if len(x) <= _LENGTH else f"{x[:_LENGTH]} …" for x in distinct]
    return first(cut, _MOST)
