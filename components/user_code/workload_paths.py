"""Where the files of a workload lie on this machine: never part of a cache key.

What the files hold is in the keys, as fingerprints. The orchestrator writes their paths
to an environment variable of the process that runs executors, so that a checkout that
was moved, or a second one, finds what the first one has computed. A component that is
given a path as a parameter reads that one, as it does under any other orchestrator.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping

CONTENT = "sha256:"
"""Begins a parameter that stands for a folder by the hash of its content."""

VARIABLE = "STRATEGOS_WORKLOAD"
"""Name of the environment variable."""


@dataclasses.dataclass(frozen=True)
class WorkloadPaths:
    """The files that a workload's YAML names, as absolute paths.

    Attributes:
      folder: Folder of the user's modules.
      examples: Pattern of the data files.
      schema: The curated schema; "" where the schema is inferred.
      weights: The weights that `trainer.warm_start` names; "" where it names none.
    """

    folder: str = ""
    examples: str = ""
    schema: str = ""
    weights: str = ""

    def to_environment(self) -> dict[str, str]:
        """The variable that hands them on."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None
    ) -> WorkloadPaths:
        """The paths that the orchestrator handed on; empty ones by default."""
        environ = os.environ if environ is None else environ
        return cls(**json.loads(environ.get(VARIABLE, "{}")))


def user_module(parameter: str) -> tuple[str, str]:
    """Folder and name of the module in a `user_module` parameter.

    Args:
      parameter: JSON: `module`, and `folder` unless the environment names it.
    """
    given = json.loads(parameter)
    folder = given.get("folder") or WorkloadPaths.from_environment().folder
    return folder, given["module"]


def weights(parameter: str) -> str:
    """The folder that a `warm_start` parameter means: a path, or one by its content."""
    if parameter.startswith(CONTENT):
        return WorkloadPaths.from_environment().weights
    return parameter
