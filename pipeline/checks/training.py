"""Checks whether this machine and the data allow the training that is configured.

They run before the first node, so that an impossible training ends within seconds.
TensorFlow is imported only to connect to a TPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from strategos.components.data_files import sources
from strategos.components.data_files.listing import Listing
from strategos.components.errors import Place, UserError
from strategos.components.trainer.distribution import batch_checks, strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.pipeline.checks import files as file_checks
from strategos.pipeline.config.sections import Config


def check(
    config: Config,
    data: Listing,
    *,
    probe: bool,
    environ: Mapping[str, str] = os.environ,
) -> list[UserError]:
    """Returns the problems that make the training of `config` impossible here.

    Args:
      config: The effective settings.
      data: The files that `data.examples` names.
      probe: Whether to connect to the TPU that training would use, which takes at most
        15 s; otherwise no network is needed.
      environ: The environment, which may name a cluster or a TPU.
    """
    problems = list(step_problems(config, data))
    launched_by = config.trainer.distribution.launched_by
    try:
        launched_by.check(str(config.run.root), config.operation().job)
    except UserError as error:
        problems.append(error)
    if not launched_by.on_this_host:
        return problems
    try:
        choice, cluster = choose(config, environ)
    except UserError as error:
        return [*problems, error]
    return problems or (_probe(config, choice, cluster) if probe else [])


def choose(
    config: Config, environ: Mapping[str, str] = os.environ
) -> tuple[strategy.Choice, ClusterSpec]:
    """Chooses the strategy for the training of `config` here.

    Args:
      config: The effective settings.
      environ: The environment, which may name a cluster or a TPU.

    Returns:
      The choice, and the cluster that the environment names.

    Raises:
      UserError: The distribution is impossible here; names the key and its place.
    """
    trainer = config.trainer
    try:
        cluster = ClusterSpec.from_environment(environ)
        wanted = trainer.distribution.for_results()
        choice = strategy.choose(wanted, cluster, trainer.settings())
        batch_checks.check_replicas(trainer.batch_size, choice.replicas or 1)
    except UserError as error:
        if error.key:
            raise config.located(error) from error
        raise error.but(place=Place("the environment")) from error
    return choice, cluster


def _probe(
    config: Config, choice: strategy.Choice, cluster: ClusterSpec
) -> list[UserError]:
    if choice.name != "tpu":
        return []
    try:
        strategy.probe_tpu(config.trainer.distribution.for_results(), cluster)
    except UserError as error:
        return [config.located(error, "trainer.distribution.strategy")]
    return []


def step_problems(config: Config, data: Listing) -> Iterator[UserError]:
    """Yields problems if rows are too few for one step, or for `warm_up_steps`."""
    trainer = config.trainer
    needs = []
    if trainer.last_batch == "drop":
        message = "`last_batch: drop` leaves no step"
        needs.append(("batch_size", trainer.batch_size, message))
    if trainer.warm_up_steps:
        # Each phase has an optimizer of its own, whose rate rises anew.
        phases = [phase.epochs for phase in trainer.phases.values()]
        epochs = min(phases, default=trainer.epochs)
        rows = -(-trainer.warm_up_steps * trainer.batch_size // epochs)
        message = f"{epochs} epochs have fewer steps"
        needs.append(("warm_up_steps", rows, message))
    if not needs:
        return
    files, _ = file_checks.data_files(config, data)
    count = _count_rows(files, max(rows for _, rows, _ in needs), config.data.reading)
    for name, rows, message in needs:
        if count is not None and count < rows:
            key = f"trainer.{name}"
            yield config.problem(
                key,
                f"the data have {count:,} rows: {message}",
                received=str(getattr(trainer, name)),
                remedy="Lower it.",
            )


def _count_rows(files: list[str], enough: int, reading: sources.Reading) -> int | None:
    """Rows in `files`, counted up to `enough`; None if they cannot be counted here."""
    if not files:
        return None
    rows = 0
    for path in files:
        if rows >= enough:
            break
        try:
            rows += sources.open_source(path, reading).count_rows(enough - rows)
        except UserError:  # ingestion reports it
            return None
    return rows
