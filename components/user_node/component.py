"""Makes a node of the user's component."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx.dsl.components.base import executor_spec
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.types import BaseChannel
from tfx.utils import name_utils

from strategos.components.user_node import USER_MODULE, executor


def make(
    component: type[BaseComponent],
    name: str,
    module: Mapping[str, Any],
    inputs: Mapping[str, BaseChannel],
    parameters: Mapping[str, Any],
) -> BaseComponent:
    """Makes a node whose executor runs inside of Strategos' own.

    Ours finds the user's modules, records what they use and explains their errors.

    Args:
      component: The class.
      name: Id of the node.
      module: Where the module is, its fingerprint, and whether the node is a gate.
      inputs: The channels by argument.
      parameters: The values by argument.

    Raises:
      Exception: Whatever the class's constructor raises.
    """
    # ML Metadata names executions by the class, and readers of history nodes by that.
    metaclass: Any = type(component)
    named = metaclass(name, (component,), {"__module__": component.__module__})
    node = named(**inputs, **parameters).with_id(name)
    own = name_utils.get_full_name(node.executor_spec.executor_class)
    is_beam = isinstance(node.executor_spec, executor_spec.BeamExecutorSpec)
    node.executor_spec = (
        executor_spec.BeamExecutorSpec(executor.BeamExecutor)
        if is_beam
        else executor_spec.ExecutorClassSpec(executor.Executor)
    )
    described = json.dumps({**module, "executor": own}, sort_keys=True)
    node.spec.exec_properties[USER_MODULE] = described
    return node
