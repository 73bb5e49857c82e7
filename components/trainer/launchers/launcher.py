"""The interface of a launcher.

Usage, in a package with the entry point `queue = "package.module:LAUNCHER"` in the
group `strategos.launchers`:

    def launch(spec: WorkerSpec, operation: Operation) -> dict[str, Any]:
        submit(operation.job["queue"])  # settings of the YAML
        return LAUNCHERS["local"].launch(spec, operation)

    LAUNCHER = Launcher("queue", "waits in a queue", launch, settings=QueueSettings)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec

if TYPE_CHECKING:
    from pydantic import BaseModel

Launch = Callable[[WorkerSpec, Operation], dict[str, Any]]
"""Trains as the spec says; returns the facts of the training, as in `trainer.json`."""


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One way to start a training's worker processes.

    Attributes:
      name: Value of `trainer.distribution.launcher`.
      description: Text for the documentation of that key; begins with a verb.
      launch: Trains. Raises `UserError` for failures that the user can correct,
        `WorkerError` for others.
      on_this_host: Whether the processes run on the host of the Trainer, so that its
        environment and devices decide on the strategy.
      hosts_join: Whether other hosts join by themselves, so that they decide how many
        workers there are, and a strategy without workers makes no sense.
      check: Called before a run with `run.root` and the settings of the launcher's
        jobs; raises `UserError` where training cannot start from this machine.
      settings: The pydantic model of `trainer.distribution.settings`; `launch` finds
        the values in `Operation.job`. None for no settings.
      services: `kubeflow`, `vertex` or both, if their steps may start the launcher.
      fixed_size: Why a training cannot go on with fewer workers than it began with; ""
        if it can (`trainer.distribution.min_workers`).
    """

    name: str
    description: str
    launch: Launch
    on_this_host: bool = False
    hosts_join: bool = False
    check: Callable[[str, Mapping[str, Any]], None] = lambda *_: None
    settings: type[BaseModel] | None = None
    services: tuple[str, ...] = ()
    fixed_size: str = "it starts all workers, or none"
