"""Checks of the components that `nodes` names, against their kept specifications."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from strategos.components.errors import UserError
from strategos.components.user_code import modules
from strategos.components.user_node import USER_MODULE, docker_run
from strategos.components.wording import did_you_mean
from strategos.pipeline.checks import module_source
from strategos.pipeline.config.problems import ConfigError, shown
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.caching import Fingerprints
from strategos.pipeline.plan.user_nodes import arguments, specs
from strategos.pipeline.view import quiet


def check(config: Config) -> Iterator[UserError]:
    """Yields a problem for each component that does not exist, or is used wrongly.

    Args:
      config: The effective settings.
    """
    missing = []
    for name, node in config.nodes.items():
        key = f"nodes.{name}.component"
        source = module_source.read(config, key, node.module)
        if isinstance(source, UserError):
            missing.append(source)
            continue
        for cause, remedy in (
            source and module_source.import_problems(source.path, source.body)
        ) or ():
            missing.append(config.problem(key, cause, remedy=remedy))
        if source and not {node.name, "*"} & source.names:
            missing.append(_no_component(config, key, node.name, source))
    yield from missing
    if config.nodes and not missing:
        fingerprints = Fingerprints.of(config)
        yield from arguments.problems(config, specs.kept(config, fingerprints))


def unread(config: Config) -> list[str]:
    """The nodes with specifications that no compilation has read yet.

    Args:
      config: The effective settings.
    """
    known = specs.kept(config, Fingerprints.of(config)) if config.nodes else {}
    return [name for name in config.nodes if name not in known]


def check_deep(config: Config) -> Sequence[UserError]:
    """Reads the specifications not known yet; returns the settings that violate them.

    Imports the components, and TFX with them.

    Args:
      config: The effective settings, after `check`.
    """
    if not unread(config):
        return []
    quiet.hush()
    try:
        specs.read(config, Fingerprints.of(config), specs.classes(config))
    except ConfigError as error:
        return error.problems
    finally:
        modules.forget()
    return []


def check_containers(config: Config, ir: Any) -> list[UserError]:
    """The nodes of a run that need Docker or podman, if neither answers.

    Args:
      config: The effective settings.
      ir: The compiled pipeline, with the nodes marked that do not run.
    """
    nodes = {x.pipeline_node.node_info.id: x.pipeline_node for x in ir.nodes}
    names = [
        name
        for name in config.nodes
        if not nodes[name].execution_options.HasField("skip")
        and _is_container(nodes[name])
    ]
    try:
        if names:
            docker_run.connect().close()
    except UserError as error:
        return [
            config.problem(
                f"nodes.{name}.component",
                f"`{config.nodes[name].component}` runs in a container, and "
                f"{error.message}",
                remedy=error.remedy,
            )
            for name in names
        ]
    return []


def _is_container(node: Any) -> bool:
    described = node.parameters.parameters[USER_MODULE].field_value.string_value
    return "container" in json.loads(described)


def _no_component(
    config: Config, key: str, name: str, source: module_source.ModuleSource
) -> UserError:
    return config.problem(
        key,
        f"{shown(source.path)} has no component `{name}`",
        remedy=did_you_mean(name, sorted(source.names), "Define it there."),
    )
