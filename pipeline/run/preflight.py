"""All checks of a run before it starts; each function raises every problem at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strategos.components.errors import UserError
from strategos.pipeline.config.problems import ConfigError

if TYPE_CHECKING:
    from strategos.components.data_files.listing import Listing
    from strategos.pipeline.config.sections import Config


def raise_all(config: Config, problems: Sequence[UserError]) -> None:
    """Raises a ConfigError with all problems, if there are any."""
    if problems:
        raise ConfigError(problems, str(config.path))


def reject(config: Config, data: Listing) -> None:
    """Raises a ConfigError for problems with files, modules, folders and `notify`.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
    """
    raise_all(config, file_problems(config, data))


def file_problems(config: Config, data: Listing) -> list[UserError]:
    """The problems with files, modules, folders and `notify`.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
    """
    from strategos.pipeline.checks import engine as engine_checks
    from strategos.pipeline.checks import files as file_checks
    from strategos.pipeline.run import notification

    problems = file_checks.check(config, data)
    if config.nodes:  # reads specifications by their cache keys
        from strategos.pipeline.checks import nodes as node_checks

        problems += node_checks.check(config)
    problems += engine_checks.check(config)
    problems += notification.problems(config)
    return problems


def reject_containers(config: Config, ir: Any) -> None:
    """Raises a ConfigError if nodes need Docker or podman, and neither answers.

    Args:
      config: The effective settings.
      ir: The compiled pipeline, with the nodes marked that do not run.
    """
    if config.nodes:
        from strategos.pipeline.checks import nodes as node_checks

        raise_all(config, node_checks.check_containers(config, ir))


def reject_training(config: Config, data: Listing) -> None:
    """Raises a ConfigError for a training or metrics that are impossible here.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
    """
    from strategos.pipeline.checks import class_metrics, training

    raise_all(config, training.check(config, data, probe=True))
    raise_all(config, class_metrics.check(config))
