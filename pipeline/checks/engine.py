"""Checks of the engine of a run before any data are read."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from strategos.components.errors import UserError
from strategos.components.files.filesystems import is_remote
from strategos.components.shards.flink import jars, java
from strategos.components.shards.flink.master import Master
from strategos.pipeline.config.sections import Config

_SECONDS = 5.0


def check(config: Config, *, here: bool = True) -> Iterator[UserError]:
    """Yields problems that make the engine of a run impossible here.

    Args:
      config: The effective settings.
      here: Whether the pipeline runs on this machine; False for a cluster.
    """
    engine = config.run.engine
    if engine.runner == "direct":
        return
    if not here:
        yield config.problem(
            "run.engine.runner",
            "but the workers of a runner do not see the files of a container",
            received=engine.runner,
            expected="direct, for `strategos compile`",
            remedy="Remove it, or run the pipeline by `strategos run`.",
        )
        return
    if engine.runner == "dataflow":
        yield from _unseen_by_dataflow(config)
    elif is_remote(config.run.root):
        yield config.problem(
            "run.root",
            f"but workers of `run.engine.runner: {engine.runner}` cannot write there",
            received=config.run.root,
            expected="a folder that all workers see",
            remedy="Use `run.engine.runner: direct`, or a shared folder.",
        )
    if engine.runner == "flink":
        yield from _flink_problems(config)
    endpoint = engine.options.job_endpoint
    problem = _unreachable(endpoint) if endpoint else ""
    if problem:
        yield config.problem(
            "run.engine.options.job_endpoint",
            f"where no job server listens ({problem})",
            received=endpoint,
            remedy="Start it, or correct the address.",
        )


def _unseen_by_dataflow(config: Config) -> Iterator[UserError]:
    paths = {"data.examples": config.data.examples, "run.root": config.run.root}
    for key, path in paths.items():
        if not path.startswith("gs://"):
            yield config.problem(
                key,
                "which workers of `run.engine.runner: dataflow` do not see",
                received=path,
                expected="gs://BUCKET/FOLDER",
                remedy="Move it there; or use `flink` or `portable`, on hosts that "
                "see it.",
            )


def _flink_problems(config: Config) -> Iterator[UserError]:
    settings = config.run.engine.settings()
    try:
        java.program()
        jars.find()
        if settings.master:
            Master(settings.master).check(settings.threads)
    except UserError as error:
        yield config.located(error, "run.engine.runner")


def _unreachable(address: str) -> str:
    """Why nothing answers at `HOST:PORT`; "" if something does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        return str(error)
    return ""
