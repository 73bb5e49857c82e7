"""Paths of a workload's files on this machine: never part of a cache key.

Cache keys hold the files' contents, as fingerprints. The orchestrator writes the paths
to an environment variable of the process that runs executors, so that a moved or second
checkout reuses the results of the first. A component with a path as a parameter uses
that path, as under any other orchestrator.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

CONTENT = "sha256:"
"""Prefix of a parameter that names a folder by the hash of its content."""

PREDICTED = "predict.data"
"""The setting with the pattern of the files that a run predicts; in `others`."""

VARIABLE = "STRATEGOS_WORKLOAD"
"""Name of the environment variable that holds the paths as JSON."""


@dataclasses.dataclass(frozen=True)
class WorkloadPaths:
    """The files that a workload's YAML names, as absolute paths.

    Attributes:
      folder: Folder of the user's modules.
      examples: Pattern of the data files.
      schema: The curated schema; "" if the schema is inferred.
      others: Patterns of further data, by setting, such as `gates.skew.serving`.
      weights: The weights that `trainer.warm_start` names; "" if it names none.
      plugins: Modules in `folder` with plug-ins, see `components.plugins`.
    """

    folder: str = ""
    examples: str = ""
    schema: str = ""
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    weights: str = ""
    plugins: tuple[str, ...] = ()

    def to_environment(self) -> dict[str, str]:
        """The environment variable that passes the paths to another process."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None
    ) -> WorkloadPaths:
        """Reads the paths from the environment; empty ones by default.

        Args:
          environ: The environment, by default this process's.
        """
        environ = os.environ if environ is None else environ
        values = json.loads(environ.get(VARIABLE, "{}"))
        return cls(**{**values, "plugins": tuple(values.get("plugins", ()))})


def user_module(parameter: str) -> tuple[str, str]:
    """Folder and name of the module in a `user_module` parameter.

    Args:
      parameter: JSON with `module`, and `folder` unless the environment has it. The
        folder in the environment has precedence: a step has downloaded its modules
        there.
    """
    settings = json.loads(parameter)
    folder = WorkloadPaths.from_environment().folder or settings.get("folder", "")
    return folder, settings["module"]


def weights(parameter: str) -> str:
    """The folder that a `warm_start` parameter names.

    Args:
      parameter: A path, or `sha256:…` for the folder in the environment.
    """
    if parameter.startswith(CONTENT):
        return WorkloadPaths.from_environment().weights
    return parameter
