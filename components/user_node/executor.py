"""Runs the executor of a user's component, and records what it uses."""

from __future__ import annotations

import json
from typing import Any

from tfx.dsl.components.base import base_beam_executor, base_executor
from tfx.types import Artifact

from strategos.components.errors import GateStoppedError, UserError
from strategos.components.user_code import modules, uses
from strategos.components.user_code.user_errors import explain
from strategos.components.user_code.workload_paths import user_module
from strategos.components.user_node import USER_MODULE

Artifacts = dict[str, list[Artifact]]


class Executor(base_executor.BaseExecutor):
    """Runs an executor in this process."""

    def Do(
        self,
        input_dict: Artifacts,
        output_dict: Artifacts,
        exec_properties: dict[str, Any],
    ) -> Any:
        """Runs the executor that the property `user_module` names.

        Returns:
          What the executor returns.

        Raises:
          GateStoppedError: The node is a gate, and stops the run.
          UserError: The executor failed; the message names file and line.
        """
        given = dict(exec_properties)
        described = given.pop(USER_MODULE)
        folder, _ = user_module(described)
        modules.forget()
        try:
            with uses.recording():
                executor = _load(folder, json.loads(described)["executor"])
                made = executor(self._context).Do(input_dict, output_dict, given)
        except Exception as error:
            raise _described(error, folder, json.loads(described)) from error
        finally:
            modules.forget()
        exec_properties.update(given)
        return made


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
    if isinstance(error, UserError):
        return error
    return UserError(f"`{module['component']}` fails: {explain(error, folder)}")
