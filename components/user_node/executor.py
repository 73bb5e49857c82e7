"""Runs the executor of a user's component, and records its uses of files."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.types import Artifact

from strategos.components.errors import GateStoppedError, UserError
from strategos.components.user_code import modules, uses
from strategos.components.user_code.user_errors import explain
from strategos.components.user_code.workload_paths import user_module
from strategos.components.user_node import USER_MODULE, docker_run

Artifacts = dict[str, list[Artifact]]


class Executor(base_executor.BaseExecutor):
    """Runs an executor in this process, or the program of a container component."""

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> Any:
        """Runs the executor that the property `user_module` names.

        Returns:
          Result of the executor; None for a container.

        Raises:
          GateStoppedError: The node is a gate, and stops the run.
          UserError: The executor failed; the message names file and line.
          SystemExit: A container was running when this process received SIGTERM.
        """
        properties = dict(exec_properties)
        described = properties.pop(USER_MODULE)
        folder, _ = user_module(described)
        module = json.loads(described)
        modules.forget()
        try:
            with uses.recording():
                made = self._work(folder, module)(input_dict, output_dict, properties)
        except Exception as error:
            raise _described(error, folder, module) from error
        finally:
            modules.forget()
        exec_properties.update(properties)
        return made

    def _work(self, folder: str, module: dict[str, Any]) -> Callable[..., Any]:
        if "container" in module:
            uri = self._context.executor_output_uri or "" if self._context else ""
            node = uri.partition("/.system/")[0]
            run = functools.partial(docker_run.run, module["container"])
            return functools.partial(run, node=node, is_gate=module["gate"])
        return _load(folder, module["executor"])(self._context).Do


class BeamExecutor(Executor, base_beam_executor.BaseBeamExecutor):
    """Runs an executor that makes pipelines of Beam."""


def _load(folder: str, path: str) -> type[base_executor.BaseExecutor]:
    module, _, name = path.rpartition(".")
    return modules.function(folder, module, name)


def _described(error: Exception, folder: str, module: dict[str, Any]) -> UserError:
    if isinstance(error, GateStoppedError) and not module["gate"]:
        return UserError(
            f"`{module['component']}` raised GateStoppedError, but the node is not a "
            f"gate: {error}",
            remedy="Set `gate: true` for the node in `nodes`.",
        )
    if isinstance(error, GateStoppedError):
        return error
    if isinstance(error, UserError) and "container" in module:
        name = module["component"].partition(":")[2]
        place = modules.assignment(folder, module["module"], name)
        message = f"`{module['component']}` fails: {error.message}"
        return error.but(place=place, message=message)
    if isinstance(error, UserError):
        return error
    return UserError(f"`{module['component']}` fails: {explain(error, folder)}")
