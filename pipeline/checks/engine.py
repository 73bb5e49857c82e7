"""Checks of the engine of a run before any data are read."""

from __future__ import annotations

from collections.abc import Iterator

from strategos.components.errors import UserError
from strategos.components.shards.beam_engine import ENGINES
from strategos.components.shards.engine import unreachable
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.master import Master
from strategos.pipeline.config.sections import Config

POD = "pod"
"""The target of a pod that runs a whole pipeline, with the root of the settings."""


def check(config: Config, *, target: str | None = None) -> Iterator[UserError]:
    """Yields problems that make the engine of a run impossible.

    Args:
      config: The effective settings.
      target: `kubeflow` or `vertex`, if the pipeline is compiled for one, or `POD`.
        This machine need not see the services there. By default, it runs here.
    """
    engine = config.run.engine
    if engine.runner == "direct":
        return
    if engine.runner == "dataflow":
        yield from _unseen_by_dataflow(config, target)
    if target:
        yield from _problems_of_image(config)
        return
    if engine.runner == "flink":
        yield from _flink_problems(config)
    if engine.runner not in ENGINES.own:
        try:
            ENGINES[engine.runner].check(engine.to_engine())
        except UserError as error:
            yield config.located(error, "run.engine.settings")
    endpoint = engine.options.job_endpoint
    problem = unreachable(endpoint) if endpoint else ""
    if endpoint and problem:
        yield config.problem(
            "run.engine.options.job_endpoint",
            f"no job server listens there ({problem})",
            received=endpoint,
            remedy="Start it, or correct the address.",
        )


def _root(config: Config, target: str | None) -> tuple[str, str]:
    """The setting of the root, and the root."""
    if target in (None, POD):
        return "run.root", config.run.root
    return f"{target}.root", getattr(config, target).root


def _unseen_by_dataflow(config: Config, target: str | None) -> Iterator[UserError]:
    key, root = _root(config, target)
    for name, path in {"data.examples": config.data.examples, key: root}.items():
        if not path.startswith("gs://"):
            yield config.problem(
                name,
                "workers of `run.engine.runner: dataflow` cannot see it",
                received=path,
                expected="gs://BUCKET/FOLDER",
                remedy="Move it there; or use `flink` or `portable`, on hosts that "
                "see it.",
            )


def _problems_of_image(config: Config) -> Iterator[UserError]:
    if config.run.engine.runner == "flink":
        yield config.problem(
            "run.engine.runner",
            "Flink needs Java, and the image of the steps has none",
            received="flink",
            remedy="Use `portable` with the job server of a Flink cluster.",
        )


def _flink_problems(config: Config) -> Iterator[UserError]:
    settings = config.run.engine.to_engine()
    try:
        java.program()
        jars.find()
        if settings.master:
            Master(settings.master).check(settings.threads)
    except UserError as error:
        yield config.located(error, "run.engine.runner")
