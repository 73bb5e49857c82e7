"""Wires the components of `nodes` to the nodes of Strategos."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strategos.components.user_code import modules
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.pipeline.config.nodes import order
from strategos.pipeline.config.nodes.sections import Node
from strategos.pipeline.config.sections import Config, Transform
from strategos.pipeline.config.trainer import Trainer
from strategos.pipeline.plan.caching import Fingerprints
from strategos.pipeline.plan.user_nodes import specs

if TYPE_CHECKING:
    from tfx.dsl.components.base.base_node import BaseNode


def add(
    made: dict[str, BaseNode],
    config: Config,
    paths: WorkloadPaths,
    fingerprints: Fingerprints,
    *,
    on_cluster: bool,
) -> None:
    """Adds the nodes of `nodes` to the others, and wires them.

    Args:
      made: Strategos' nodes by id; changed in place.
      config: The settings with the paths of this machine.
      paths: The paths that are parameters of nodes.
      fingerprints: Of the user's modules.
      on_cluster: Whether the pipeline is compiled for a cluster.

    Raises:
      ConfigError: A component cannot be imported, or is not used as it specifies.
    """
    from strategos.components.user_node import component

    own = config.nodes
    try:
        classes = specs.classes(config)
        known = specs.read(config, fingerprints, classes)
        for name in (each for each in order.names(config) if each in own):
            node = own[name]
            arguments = module(paths, node, fingerprints.nodes[name])
            with specs.explaining(config, name):
                made[name] = component.make(
                    classes[name],
                    name,
                    {**arguments, "component": node.component, "gate": node.gate},
                    {key: made[x].outputs[y] for key, (x, y) in node.producers.items()},
                    specs.values(node, known[name]),
                    on_cluster=on_cluster,
                )
    finally:
        modules.forget()
    for old, name in order.replaced(own).items():
        _replace(made, made.pop(old), made[name])


def _replace(made: dict[str, BaseNode], old: BaseNode, new: BaseNode) -> None:
    """Gives the outputs of `new` to all nodes that take outputs of `old`."""
    for node in made.values():
        for key, channel in node.inputs.items():
            if channel.producer_component_id == old.id:
                node.spec.inputs[key] = new.outputs[channel.output_key]


def module(
    paths: WorkloadPaths, section: Transform | Trainer | Node, fingerprint: str
) -> dict[str, Any]:
    """The arguments by which an executor finds a user's module; its fingerprint.

    Args:
      paths: The paths that are parameters of nodes.
      section: The section that names the module.
      fingerprint: Of the module.
    """
    named: dict[str, Any] = {"folder": paths.folder} if paths.folder else {}
    if section.files:
        named["files"] = section.files
    return {**named, "module": section.module, "fingerprint": fingerprint}
