"""The steps of a user's own loop: their results, and replicas that take them together.

`servers.worker_steps` has the same for workers that share variables on servers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.gang import heartbeat

Step = Callable[[Any], Mapping[str, Any]]
"""Maps a batch to scalars by name, means over the rows of the batch."""

Measured = tuple[int, dict[str, float]]
"""Rows of a batch, and means over these rows by name."""


def scalars(values: Any) -> dict[str, Any]:
    """The result of the user's step, checked.

    Args:
      values: What the step has returned, perhaps in a trace.

    Raises:
      UserError: The result is no dict of scalars.
    """
    if not isinstance(values, Mapping):
        raise UserError(
            "`run_fn`: the step returns no values by name",
            received="None" if values is None else f"a {type(values).__name__}",
            expected='a dict of scalars, such as `{"loss": loss}`',
        )
    for name, value in values.items():
        if isinstance(value, tf.distribute.DistributedValues):
            raise UserError(
                f"`run_fn`: the step returns `{name}` of each replica",
                expected="one scalar",
                remedy='Combine them: `strategy.reduce("SUM", …, axis=None)`.',
            )
        shape = tf.TensorShape(getattr(value, "shape", ()))
        if shape.rank:
            raise UserError(
                f"`run_fn`: the step returns `{name}` of the shape {shape}",
                expected="a scalar, the mean over the rows of the batch",
            )
    return dict(values)


def plain(values: Mapping[str, Any]) -> dict[str, float]:
    """Scalars as Python's numbers.

    Raises:
      UserError: A value is not a scalar, or not a number.
    """
    return {name: number(name, value) for name, value in values.items()}


def number(name: str, value: Any) -> float:
    """A measured value as a number of Python.

    Args:
      name: Its name in the logs.
      value: A scalar: a tensor, an array, or a number.

    Raises:
      UserError: The value is not a scalar, or not a number.
    """
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        shape = tuple(np.shape(value))
        raise UserError(
            f"a step or an epoch is measured by `{name}`, which is not a number",
            received=f"the shape {shape}" if shape else repr(np.asarray(value).item()),
            expected="a scalar",
        ) from error


class ReplicaSteps:
    """Replicas that take each step together.

    Args:
      evaluation: Returns the evaluation batches, without end and divided among the
        replicas, and the rows of each batch of a pass. Called at the first evaluation.
    """

    def __init__(self, evaluation: Callable[[], tuple[Any, Sequence[int]]]):
        self._evaluation = functools.cache(evaluation)

    def evaluated(self, step: Step) -> Iterator[Measured]:
        """Yields what a step measures on each evaluation batch.

        Args:
          step: The user's step.
        """
        batches, rows = self._evaluation()
        for count, batch in zip(rows, batches, strict=False):
            yield count, plain(scalars(step(batch)))
            heartbeat.current().alive()
