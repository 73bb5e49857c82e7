"""`strategos check-cluster`: measures the hosts of a training before a long job."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strategos.components import node_ids, worker_process
from strategos.components.errors import ExitCode
from strategos.components.trainer import launchers
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.wording import counted, data_size, duration
from strategos.pipeline import commands
from strategos.pipeline.config.sections import Config
from strategos.pipeline.history import transformed
from strategos.pipeline.root import lock

_PLACE = "cluster-check"
_SLOW = 2.0  # times the median
_LONG_SECONDS = 1.0  # below this, a difference between hosts is noise


def check_cluster(arguments: argparse.Namespace) -> int:
    """`strategos check-cluster`: the gang joins, exchanges, saves and restores.

    The workers are those of a training with the same settings, by the same launcher.

    Args:
      arguments: The parsed command line.

    Raises:
      BadInputError: A run is in progress.
      UserError: The training would have a single worker, or workers do not join, do not
        reach each other or cannot write a checkpoint.
    """
    config = commands.load(arguments).config
    operation = dataclasses.replace(
        config.operation(),
        check_bytes=arguments.megabytes * 10**6,
        max_restarts=0,
        min_workers=None,
    )
    print(
        "starting the workers, which exchange and save "
        f"{data_size(operation.check_bytes)}",
        file=sys.stderr,
        flush=True,
    )
    quiet = config.trainer.distribution.launched_by.on_this_host
    log = worker_process.log_kept_back() if quiet else contextlib.nullcontext()
    with lock.hold(config.run.root, run_id="check-cluster"), log:
        facts = launchers.launch(_spec(config), operation)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        print(*_lines(facts), sep="\n")
    return ExitCode.DONE


def _spec(config: Config) -> WorkerSpec:
    """A training of the pipeline without data."""
    folder = f"{config.run.root}/{config.name}/{node_ids.TRAINER}"
    return dataclasses.replace(
        transformed.worker_spec(config, dict.fromkeys(transformed.NEEDED, "")),
        train_files=(),
        model_dir=f"{folder}/model/{_PLACE}",
        log_dir=f"{folder}/model_run/{_PLACE}",
        checkpoint_dir=f"{folder}/checkpoints/{_PLACE}",
        files=tuple(config.trainer.files),
    )


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """The measurements as text."""
    names, links = facts["workers"], facts["links"]
    exchanged = data_size(facts["bytes"])
    wide = max(len("  ".join(link["workers"])) for link in links)
    yield f"{'worker':{wide}}  {'joined in':>12}  {'computes':>14}  {'restores':>12}"
    for name, *values in zip(
        names, facts["join"], facts["compute"], facts["restore"], strict=True
    ):
        joined, computes, restores = values
        yield (
            f"{name:{wide}}  {duration(joined):>12}  {_speed(computes):>14}  "
            f"{_time(restores):>12}"
        )
    yield f"{'link':{wide}}  {'round trip':>12}  {'each direction':>14}"
    for link in links:
        ends = "  ".join(link["workers"])
        rate = f"{data_size(link['bytes_per_second'])}/s"
        yield f"{ends:{wide}}  {_time(link['round_trip']):>12}  {rate:>14}"
    yield f"an all-reduce of {exchanged} takes {_time(facts['all_reduce'])}"
    yield f"saving {exchanged} takes {_time(facts['save'])}"
    slow = list(slow_parts(facts))
    yield from (f"slow: {each}" for each in slow)
    if not slow and len(names) > 2:
        yield f"none of the {counted(len(names), 'worker')} is slow"
    megabits = max(1, round(bandwidth(facts) * 8 / 1e6))
    yield (
        "for `strategos explain distribution`: --set "
        f"trainer.distribution.bandwidth={megabits}Mbit"
    )


def bandwidth(facts: Mapping[str, Any]) -> float:
    """The bandwidth by which `strategos explain distribution` estimates an exchange.

    Besides the network it accounts for the processes' own work in an exchange of this
    size, which can be most of the time.

    Args:
      facts: The facts of `cluster_check.run`.

    Returns:
      Bytes a second: those of the slowest link, or fewer if the all-reduce took longer
      than a ring through it.
    """
    workers = len(facts["workers"])
    ring = 2 * (workers - 1) / workers * facts["bytes"] / facts["all_reduce"]
    return min(ring, *(link["bytes_per_second"] for link in facts["links"]))


def slow_parts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each worker and link that is twice as slow as the median.

    Args:
      facts: The facts of `cluster_check.run`. With two workers there is no median.
    """
    names, links = facts["workers"], facts["links"]
    if len(names) < 3:
        return
    computes, restores = facts["compute"], facts["restore"]
    for name, speed in zip(names, computes, strict=True):
        if speed * _SLOW < (usual := statistics.median(computes)):
            yield f"{name} computes {_speed(speed)}, the median is {_speed(usual)}"
    for name, seconds in zip(names, restores, strict=True):
        usual = statistics.median(restores)
        if seconds > max(_LONG_SECONDS, _SLOW * usual):
            yield f"{name} restores in {_time(seconds)}, the median is {_time(usual)}"
    rates = [link["bytes_per_second"] for link in links]
    for link in links:
        usual, rate = statistics.median(rates), link["bytes_per_second"]
        if rate * _SLOW < usual:
            yield (
                f"{_between(link['workers'])} {data_size(rate)}/s pass, the median is "
                f"{data_size(usual)}/s"
            )


def _between(workers: Sequence[str]) -> str:
    return f"between {workers[0]} and {workers[1]}"


def _speed(operations: float) -> str:
    return f"{operations / 1e9:,.3g} GFLOP/s"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else f"{seconds * 1000:.3g} ms"
