"""The specifications of the components in `nodes`: read once, and kept.

Reading a specification imports the component, and with it TFX. It is read once, when
the pipeline is compiled, and kept beside the compiled pipeline under the fingerprint of
the component's module, so that `strategos validate` checks types without TFX.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from strategos.components.errors import UserError
from strategos.components.files import commit
from strategos.components.user_code import modules
from strategos.components.user_code.user_errors import explain
from strategos.components.user_node.spec import Spec
from strategos.pipeline.config.nodes.sections import Node
from strategos.pipeline.config.problems import ConfigError
from strategos.pipeline.config.sections import Config
from strategos.pipeline.plan.caching import Fingerprints
from strategos.pipeline.plan.user_nodes import arguments
from strategos.pipeline.root.state import make_state, state_folder


def kept(config: Config, fingerprints: Fingerprints) -> dict[str, Spec]:
    """The specifications that earlier compilations have read, by node.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules.
    """
    files = {name: _file(config, fingerprints, name) for name in config.nodes}
    return {
        name: Spec.from_json(json.loads(file.read_text()))
        for name, file in files.items()
        if file.is_file()
    }


def classes(config: Config) -> dict[str, Any]:
    """Imports the components, by node; None for one that its module lacks.

    Args:
      config: The effective settings.

    Raises:
      ConfigError: A module cannot be imported.
    """
    loaded, problems = {}, []
    for name, node in config.nodes.items():
        try:
            module = modules.load(str(config.folder), node.module)
            loaded[name] = getattr(module, node.name, None)
        except UserError as error:
            problems.append(config.located(error, f"nodes.{name}.component"))
    if problems:
        raise ConfigError(problems, str(config.path))
    return loaded


def read(
    config: Config, fingerprints: Fingerprints, components: Mapping[str, Any]
) -> dict[str, Spec]:
    """Reads the specifications of components, keeps them, and checks their use.

    Args:
      config: The effective settings.
      fingerprints: Of the user's modules.
      components: From `classes`.

    Returns:
      The specifications, by node.

    Raises:
      ConfigError: A class is not a component, or is not used as it specifies.
    """
    specs, wrong = {}, []
    for name, component in components.items():
        try:
            specs[name] = Spec.of(component)
        except UserError as error:
            node = config.nodes[name]
            problem = error.but(message=f"`{node.component}` {error.message}")
            wrong.append(config.located(problem, f"nodes.{name}.component"))
    for name, spec in specs.items():
        _keep(_file(config, fingerprints, name), spec)
    if wrong := [*wrong, *arguments.problems(config, specs)]:
        raise ConfigError(wrong, str(config.path))
    return specs


def values(node: Node, spec: Spec) -> dict[str, Any]:
    """The parameters of a node, whole numbers as floats where these are declared."""
    return {
        name: float(value)
        if type(value) is int and spec.parameters[name].type == "float"
        else value
        for name, value in node.parameters.items()
    }


@contextlib.contextmanager
def explaining(config: Config, name: str) -> Iterator[None]:
    """Turns an error of the constructor of a node's component into a ConfigError.

    Args:
      config: The effective settings.
      name: Name of the node.
    """
    try:
        yield
    except Exception as error:
        text = explain(error, str(config.folder))
        component = config.nodes[name].component
        message = f"`{component}` rejects its arguments: {text}"
        problem = config.problem(f"nodes.{name}", message)
        raise ConfigError([problem], str(config.path)) from error


def _file(config: Config, fingerprints: Fingerprints, name: str) -> Path:
    component, code = config.nodes[name].component, fingerprints.nodes[name]
    parts = "\0".join((component, code, metadata.version("tfx")))
    key = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return state_folder(config.run.root) / "ir" / f"{key}.json"


def _keep(file: Path, spec: Spec) -> None:
    make_state(file.parent)
    commit.write(file, json.dumps(spec.to_json()))
