"""Rejects a global batch that does not fit the replicas, or the rows of an epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from strategos.components.errors import UserError
from strategos.components.wording import counted, listed

SEVERAL_STEPS = "there are several steps per execution under several replicas"
"""Why replicas need equally many rows: a collective keeps the shapes of its first step.
"""


def check_replicas(batch_size: int, replicas: int) -> None:
    """Rejects a global batch that leaves a replica without a row.

    Args:
      batch_size: Rows of a global batch.
      replicas: Copies of the model that share it.

    Raises:
      UserError: The batch has fewer rows than there are replicas.
    """
    if batch_size < replicas:
        raise UserError(
            f"fewer rows than the {replicas} replicas that share a step",
            key="trainer.batch_size",
            received=str(batch_size),
            remedy=f"Raise it to at least {replicas}, or use fewer `workers` or "
            "`devices`.",
        )


def check_parts(batch_size: int, replicas: int, parts: int) -> None:
    """Rejects more parts of a batch than a replica has rows (`accumulate_steps`).

    Args:
      batch_size: Rows of a global batch.
      replicas: Copies of the model that share it.
      parts: Parts in which a replica computes its batch.

    Raises:
      UserError: A part would have no row.
    """
    rows = batch_size // replicas
    if rows < parts:
        raise UserError(
            f"more parts than the {counted(rows, 'row')} that a replica has of a batch",
            key="trainer.accumulate_steps",
            received=str(parts),
            remedy="Lower it, or raise `batch_size`.",
        )


def check_steps(steps: int, rows: int, batch_size: int) -> None:
    """Rejects an epoch with less than one batch if smaller batches are left out.

    Args:
      steps: Global batches of an epoch.
      rows: Rows of an epoch.
      batch_size: Rows of a global batch.

    Raises:
      UserError: There is no batch.
    """
    if not steps:
        raise UserError(
            f"the {rows:,} rows of an epoch do not fill a batch, and a smaller one is "
            "left out (`last_batch: drop`, or the log says why)",
            key="trainer.batch_size",
            received=f"{batch_size:,}",
            remedy="Choose a smaller one, or add data.",
        )


def check_even(batch_size: int, replicas: int, why: str, instead: str = "") -> None:
    """Rejects a global batch that replicas cannot share evenly, where they must.

    Args:
      batch_size: Rows of a global batch.
      replicas: Copies of the model that share it.
      why: The reason for which each needs as many rows.
      instead: Another remedy than a multiple of `replicas`, e.g. `, or shard: rows`.

    Raises:
      UserError: The batch cannot be divided evenly.
    """
    if batch_size % replicas:
        raise UserError(
            f"the batch cannot be divided evenly among {replicas} replicas, as needed "
            f"here: {why}",
            key="trainer.batch_size",
            received=f"{batch_size:,}",
            remedy=f"Choose a multiple of {replicas}{instead}.",
        )


def check_even_for_each(batch_size: int, sizes: Sequence[int], why: str) -> None:
    """Rejects a global batch that one of several numbers of replicas cannot divide.

    Args:
      batch_size: Rows of a global batch.
      sizes: Numbers of replicas that may train after one another.
      why: The reason for which each replica needs as many rows.

    Raises:
      UserError: The batch cannot be divided evenly by each of `sizes`.
    """
    if len(sizes) == 1:
        check_even(batch_size, sizes[0], why)
    uneven = [size for size in sizes if batch_size % size]
    if uneven:
        raise UserError(
            f"the batch cannot be divided evenly among {_replicas(uneven)}, which "
            "`trainer.distribution.min_workers` allows, as needed here: " + why,
            key="trainer.batch_size",
            received=f"{batch_size:,}",
            remedy=f"Choose a multiple of {math.lcm(*sizes):,}, which "
            f"{_replicas(sizes)} divide evenly, or remove `min_workers`.",
        )


def _replicas(sizes: Sequence[int]) -> str:
    return f"{listed([str(size) for size in sizes], 'or')} replicas"
