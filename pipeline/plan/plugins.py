"""The plug-ins that a pipeline uses: what its image must hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from strategos.components.plugins import Registry
from strategos.components.pusher import targets
from strategos.components.trainer.launchers import LAUNCHERS
from strategos.components.wording import listed, quoted

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def used(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the name of each plug-in, ours too, with its registry.

    Args:
      config: The effective settings.
    """
    yield LAUNCHERS, config.trainer.distribution.launcher
    for folder in config.pusher.folders.values() if config.pusher else ():
        yield targets.TARGETS, targets.scheme(folder)


def note(config: Config) -> str:
    """What an image must hold besides Strategos and the workload; "" for nothing.

    Args:
      config: The effective settings.
    """
    packages: dict[str, list[str]] = {}
    for registry, name in used(config):
        if package := registry.package(name):
            packages.setdefault(package, []).append(f"{registry.group} {name}")
    named = [f"{each} ({listed(quoted(n))})" for each, n in sorted(packages.items())]
    return f"the image must have the packages {listed(named)}" if named else ""
