"""A declarative TFX pipeline whose trainer picks its own `tf.distribute` strategy.

The names in `__all__` are the public interface; CONTRIBUTING.md says how long they
stay. Nothing is imported before it is used:

    import strategos

    result = strategos.run("pipeline.yaml", sets={"trainer.epochs": 3})
    print(result.run.outcome, result.run.metrics)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strategos.components.data_files.queries.database import Database
    from strategos.components.data_files.sources.source import (
        WHOLE,
        BadRow,
        Part,
        Source,
    )
    from strategos.components.errors import (
        BadInputError,
        ExitCode,
        GateStoppedError,
        Place,
        UserError,
    )
    from strategos.components.evaluation.metrics import Batch, Metric
    from strategos.components.evaluation.trivial import OneAnswer
    from strategos.components.plugins.notification import Notification
    from strategos.components.push_targets.targets import Target
    from strategos.components.shards.beam_engine import BeamEngine
    from strategos.components.span_validator.gate import Gate
    from strategos.components.trainer.launchers import LAUNCHERS
    from strategos.components.trainer.launchers.launcher import Launcher
    from strategos.components.trainer.loop.custom_loop import Loop
    from strategos.components.trainer.model.context import TrainingContext
    from strategos.components.trainer.operation import Operation
    from strategos.components.trainer.spec import WorkerSpec
    from strategos.pipeline.api import (
        RunEvent,
        RunResult,
        Validation,
        history,
        load,
        run,
        validate,
    )
    from strategos.pipeline.config.loading import Loaded
    from strategos.pipeline.config.problems import ConfigError
    from strategos.pipeline.config.sections import Config
    from strategos.pipeline.history.runs import NodeRun, Run

    __version__: str

__all__ = [
    "LAUNCHERS",
    "PLUGIN_API",
    "WHOLE",
    "BadInputError",
    "BadRow",
    "Batch",
    "BeamEngine",
    "Config",
    "ConfigError",
    "Database",
    "ExitCode",
    "Gate",
    "GateStoppedError",
    "Launcher",
    "Loaded",
    "Loop",
    "Metric",
    "NodeRun",
    "Notification",
    "OneAnswer",
    "Operation",
    "Part",
    "Place",
    "Run",
    "RunEvent",
    "RunResult",
    "Source",
    "Target",
    "TrainingContext",
    "UserError",
    "Validation",
    "WorkerSpec",
    "__version__",
    "history",
    "load",
    "run",
    "validate",
]

PLUGIN_API = 1
"""The version of the interfaces that plug-ins implement: see CONTRIBUTING.md."""

_HOMES = {
    "components.errors": (
        *("BadInputError", "ExitCode", "GateStoppedError", "Place", "UserError"),
    ),
    "components.evaluation.metrics": ("Batch", "Metric"),
    "components.evaluation.trivial": ("OneAnswer",),
    "components.data_files.queries.database": ("Database",),
    "components.data_files.sources.source": ("WHOLE", "BadRow", "Part", "Source"),
    "components.plugins.notification": ("Notification",),
    "components.push_targets.targets": ("Target",),
    "components.shards.beam_engine": ("BeamEngine",),
    "components.span_validator.gate": ("Gate",),
    "components.trainer.launchers": ("LAUNCHERS",),
    "components.trainer.launchers.launcher": ("Launcher",),
    "components.trainer.loop.custom_loop": ("Loop",),
    "components.trainer.model.context": ("TrainingContext",),
    "components.trainer.operation": ("Operation",),
    "components.trainer.spec": ("WorkerSpec",),
    "pipeline.api": (
        *("RunEvent", "RunResult", "Validation"),
        *("history", "load", "run", "validate"),
    ),
    "pipeline.config.loading": ("Loaded",),
    "pipeline.config.problems": ("ConfigError",),
    "pipeline.config.sections": ("Config",),
    "pipeline.history.runs": ("NodeRun", "Run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("strategos")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'strategos' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"strategos.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
