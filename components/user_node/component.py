"""Makes a node of the user's component."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from tfx.dsl.component.experimental import executor_specs
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
    *,
    on_cluster: bool,
) -> BaseComponent:
    """Makes a node that runs the user's executor inside of Strategos' executor.

    Ours finds the user's modules, records their uses and explains their errors. For a
    container component it starts the container; a cluster starts containers itself.

    Args:
      component: The class.
      name: Id of the node.
      module: Folder and name of the module, its fingerprint, and whether the node is a
        gate.
      inputs: The channels by argument.
      parameters: The values by argument.
      on_cluster: Whether the pipeline is compiled for a cluster.

    Raises:
      Exception: Any error of the class's constructor; or the command of a container has
        a placeholder that the component does not declare.
    """
    container = component.EXECUTOR_SPEC
    in_container = isinstance(container, executor_specs.TemplatedExecutorContainerSpec)
    # ML Metadata names executions by the class, and readers of history nodes by that.
    metaclass: Any = type(component)
    home = module["module"] if in_container else component.__module__
    named = metaclass(name, (component,), {"__module__": home})
    node = named(**inputs, **parameters).with_id(name)
    if in_container:
        program = json_format.MessageToDict(container.encode(node.spec))
        described = {**module, "container": program}
    else:
        own = name_utils.get_full_name(node.executor_spec.executor_class)
        described = {**module, "executor": own}
    if isinstance(node.executor_spec, executor_spec.BeamExecutorSpec):
        node.executor_spec = executor_spec.BeamExecutorSpec(executor.BeamExecutor)
    elif not (in_container and on_cluster):
        node.executor_spec = executor_spec.ExecutorClassSpec(executor.Executor)
    node.spec.exec_properties[USER_MODULE] = json.dumps(described, sort_keys=True)
    return node
