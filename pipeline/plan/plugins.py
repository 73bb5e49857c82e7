"""The plug-ins that a pipeline uses: their versions, and packages for its image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from strategos.components.data_files import sources
from strategos.components.data_files.queries import databases
from strategos.components.data_files.queries.databases import DATABASES
from strategos.components.data_files.sources import SOURCES
from strategos.components.evaluation.metrics import METRICS, plain
from strategos.components.plugins import Registry
from strategos.components.push_targets import targets
from strategos.components.shards.beam_engine import ENGINES
from strategos.components.span_validator.gate import GATES
from strategos.components.trainer.launchers import LAUNCHERS
from strategos.components.wording import listed, quoted
from strategos.pipeline.config.operating import NOTIFICATIONS

if TYPE_CHECKING:
    from strategos.pipeline.config.sections import Config


def used(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the name of each plug-in, ours too, with its registry.

    Args:
      config: The effective settings.
    """
    yield from readers(config)
    yield from predicted_readers(config)
    if config.data.query:
        yield DATABASES, databases.scheme(config.data.query.database)
    yield from gates(config)
    yield LAUNCHERS, config.trainer.distribution.launcher
    yield from metrics(config)
    yield ENGINES, config.run.engine.runner
    for name in config.notify.plugins if config.notify else ():
        yield NOTIFICATIONS, name
    for folder in config.pusher.folders.values() if config.pusher else ():
        yield targets.TARGETS, targets.scheme(folder)


def readers(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the readers of the data: all of them if the pattern names no suffix."""
    compared = config.gates.other_data if config.gates else {}
    yield from _readers((config.data.examples, *compared.values()))


def predicted_readers(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the readers of the files that `predict` names."""
    yield from _readers((config.predict.data,) if config.predict else ())


def _readers(patterns: Iterable[str]) -> Iterator[tuple[Registry[Any], str]]:
    for name in map(sources.name_of, patterns):
        yield from ((SOURCES, each) for each in ([name] if name else SOURCES))


def metrics(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the metrics of the evaluator."""
    for name in config.evaluator.metrics if config.evaluator else ():
        yield METRICS, plain(name)


def gates(config: Config) -> Iterator[tuple[Registry[Any], str]]:
    """Yields the gates of new spans that are plug-ins."""
    for name in config.gates.plugins if config.gates else ():
        yield GATES, name


def versions(plugins: Iterator[tuple[Registry[Any], str]]) -> str:
    """The versions of those plug-ins that are not ours, for cache keys.

    Args:
      plugins: Names with their registries.
    """
    by_plugin = {(each.group, name): each.version(name) for each, name in plugins}
    return ", ".join(
        f"{key[1]} {by_plugin[key]}" for key in sorted(by_plugin) if by_plugin[key]
    )


def note(config: Config) -> str:
    """Names the packages of plug-ins that an image must contain; "" for none.

    Args:
      config: The effective settings.
    """
    packages: dict[str, list[str]] = {}
    for registry, name in used(config):
        if package := registry.package(name):
            packages.setdefault(package, []).append(f"{registry.group} {name}")
    named = [f"{each} ({listed(quoted(n))})" for each, n in sorted(packages.items())]
    return f"the image must have the packages {listed(named)}" if named else ""
