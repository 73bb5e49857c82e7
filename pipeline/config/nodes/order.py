"""The order of the graph's nodes, from the settings alone: nothing is compiled."""

from __future__ import annotations

import graphlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import InitErrorDetails

from strategos.components import node_ids
from strategos.components.wording import nearest
from strategos.pipeline.config.introspect import KEY
from strategos.pipeline.config.nodes.sections import Nodes
from strategos.pipeline.config.problems import reject_at

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config

_JUDGES = node_ids.GATES.keys() - {node_ids.INFRA_VALIDATOR}


def names(config: Config) -> list[str]:
    """The ids of a pipeline's nodes in order, as `graph` wires them, not compiled."""
    return _ordered(follows(_present(dict(config)), config.nodes))


def problems(sections: Mapping[str, Any], nodes: Nodes) -> Iterator[InitErrorDetails]:
    """Yields errors in the names that `nodes` uses, and cycles.

    Args:
      sections: The sections that the graph depends on, by field, without invalid ones.
      nodes: The section.
    """
    present = _present(sections)
    yield from _wrong_replacements(present, nodes)
    present = [each for each in present if each not in replaced(nodes)]
    for name, node in nodes.items():
        if name in node_ids.ON_CLUSTER:
            remedy = "Choose another name."
            yield reject_at((name, KEY), "a node has this name already", remedy=remedy)
        for key, (producer, output) in node.producers.items():
            yield from _unknown(("inputs", key), name, producer, present, nodes)
            outputs = node_ids.OUTPUTS.get(producer, {})
            if producer in present and output not in outputs:
                yield reject_at(
                    (name, "inputs", key),
                    f"{producer} has no output `{output}`",
                    expected=", ".join(f"{producer}.{each}" for each in outputs),
                )
        for key in ("after", "before"):
            for place, other in enumerate(getattr(node, key)):
                yield from _unknown((key, place), name, other, present, nodes)
    yield from _cycle(follows(present, nodes), nodes)


def follows(present: Iterable[str], nodes: Nodes) -> dict[str, set[str]]:
    """The nodes that each node follows directly.

    Args:
      present: Ids of the nodes of Strategos, with or without replaced ones.
      nodes: The section `nodes`.
    """
    instead = replaced(nodes)
    ours = {*present, *instead}
    predecessors = {
        instead.get(x, x): {
            instead.get(y, y) for y in node_ids.FOLLOWS.get(x, ()) if y in ours
        }
        for x in node_ids.ALL
        if x in ours
    }
    known = predecessors.keys() | nodes.keys()
    for name, node in nodes.items():
        producers = {producer for producer, _ in node.producers.values()}
        predecessors.setdefault(name, set()).update(known & {*producers, *node.after})
    for name, node in nodes.items():
        for later in known & {*node.before}:
            predecessors[later].add(name)
    for name, node in nodes.items():
        for later in (
            _behind(name, predecessors) if node.gate and not node.before else ()
        ):
            predecessors[later].add(name)
    return predecessors


def replaced(nodes: Nodes) -> dict[str, str]:
    """The nodes of Strategos that are replaced, each with the node in its place."""
    return {node.replaces: name for name, node in nodes.items() if node.replaces}


def of_sections(names: Iterable[str]) -> set[str]:
    """The ids of the nodes that a pipeline has only with some sections of the YAML.

    Args:
      names: Of sections.
    """
    added = {**_OF_SECTIONS, "statistics": _STATISTICS}
    return {node for name in names for node in added.get(name, ())}


def _wrong_replacements(
    present: Collection[str], nodes: Nodes
) -> Iterator[InitErrorDetails]:
    """Yields an error for each node that replaces an absent or a replaced one."""
    last = replaced(nodes)
    for name, old in ((name, node.replaces) for name, node in nodes.items()):
        if old and old not in present:
            yield reject_at((name, "replaces"), f"the pipeline has no node `{old}`")
        elif old and last[old] != name:
            yield reject_at((name, "replaces"), f"{last[old]} replaces {old}, too")


def _behind(gate: str, predecessors: Mapping[str, set[str]]) -> list[str]:
    """Strategos' nodes after all nodes that a gate depends on, without gates."""
    needed: set[str] = set()
    todo = [gate]
    while todo:
        todo += (more := predecessors[todo.pop()] - needed)
        needed |= more
    last = max((node_ids.ALL.index(x) for x in needed if x in node_ids.ALL), default=-1)
    return [
        x for x in node_ids.ALL[last + 1 :] if x in predecessors and x not in _JUDGES
    ]


def _present(sections: Mapping[str, Any]) -> list[str]:
    """Strategos' nodes in a pipeline, or possible ones if a section is invalid."""
    absent: set[str] = set()
    if "schema_" in sections:
        curated = sections["schema_"].file
        absent.add(node_ids.SCHEMA_GEN if curated else node_ids.IMPORT_SCHEMA_GEN)
    for section, of_section in _OF_SECTIONS.items():
        if section in sections and not sections[section]:
            absent |= of_section
    if "statistics" in sections:
        wanted = sections["statistics"].nodes if sections["statistics"] else set()
        absent |= _STATISTICS - wanted
    return [name for name in node_ids.ALL if name not in absent]


_STATISTICS = {node_ids.DETAILED_STATISTICS, node_ids.TRANSFORMED_STATISTICS}
_OF_SECTIONS = {
    "gates": {node_ids.SPAN_VALIDATOR, node_ids.SPAN_GATE},
    "evaluator": {
        *(node_ids.BASELINE_MODEL, node_ids.EVALUATOR, node_ids.EVALUATION_GATE)
    },
    "pusher": {node_ids.INFRA_VALIDATOR, node_ids.PUSHER},
    "predict": {node_ids.BULK_INFERRER},
}


def _unknown(
    key: tuple[str | int, ...],
    name: str,
    other: str,
    present: list[str],
    nodes: Nodes,
) -> Iterator[InitErrorDetails]:
    """Yields the error for a node that the pipeline lacks, if it does."""
    known = [*present, *nodes]
    if other not in known:
        meant = replaced(nodes).get(other) or nearest(other, known)
        yield reject_at(
            (name, *key),
            f"the pipeline has no node `{other}`",
            expected=", ".join(known),
            remedy=f"Did you mean `{meant}`?" if meant else "",
        )


def _cycle(
    predecessors: Mapping[str, set[str]], nodes: Nodes
) -> Iterator[InitErrorDetails]:
    try:
        graphlib.TopologicalSorter(predecessors).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        own = next(each for each in nodes if each in cycle)
        yield reject_at(
            (own, KEY),
            f"the nodes wait for each other: {' → '.join(cycle)}",
            remedy="Remove one of `inputs`, `after` and `before`.",
        )


def _ordered(predecessors: Mapping[str, set[str]]) -> list[str]:
    """Each node behind those that it follows; ours in the order of the graph."""
    ranks = {name: rank for rank, name in enumerate(node_ids.ALL)}
    order: list[str] = []
    while left := predecessors.keys() - set(order):
        ready = (name for name in left if predecessors[name] <= set(order))
        order.append(min(ready, key=lambda name: (ranks.get(name, -1), name)))
    return order
