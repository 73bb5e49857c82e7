"""Checks a cluster in place of a training: `strategos check-cluster`.

Each worker joins the gang as in a training. Then they measure, together: the exchange
between each two of them, an all-reduce of all, arithmetic, and a checkpoint.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError, required
from strategos.components.files import storage
from strategos.components.trainer.distribution import strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import heartbeat
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.trainer.loop.checkpoint import checkpoints
from strategos.components.trainer.loop.state import stored_variables
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.wording import data_size

_TRIES = 3  # the median counts
_ROUND_TRIP_BYTES = 4
_LINK_BYTES = 8_000_000  # 0.6 s at 100 Mbit/s
_LINK_SECONDS = 60.0  # time-out of an exchange between two workers
_GROUP = 1 << 20  # above the numbers that TensorFlow gives to its own groups
_SIDE = 1024  # rows and columns of the multiplied matrices


def run(spec: WorkerSpec, cluster: ClusterSpec, size: int) -> dict[str, Any]:
    """Measures a cluster as one task of it.

    Args:
      spec: A training: its strategy, and a folder for the checkpoint, which is removed.
      cluster: All tasks, and the task of this process.
      size: Bytes that workers exchange and save.

    Returns:
      `workers`, their names; for each of them `join`, seconds until all had joined,
      `compute`, floating-point operations a second, and `restore`, seconds; `links`,
      for each two workers their names, the seconds of a `round_trip` and
      `bytes_per_second` in each direction; `all_reduce` and `save`, seconds; `bytes`,
      the size.

    Raises:
      UserError: Two workers do not reach each other.
    """
    heartbeat.current().joined()
    choice = strategy.choose(spec.distribution, cluster, spec.settings)
    began = time.perf_counter()
    distribution = strategy.build(choice, spec.distribution, cluster)
    joined = time.perf_counter() - began
    gang = _Gang(distribution, cluster, choice.workers)
    with heartbeat.keep_alive():
        logging.info("measuring %d workers", choice.workers)
        facts = {
            "workers": gang.names,
            "bytes": size,
            "join": gang.gathered(joined),
            "compute": gang.gathered(_operations_per_second()),
            "links": gang.links(size),
            "all_reduce": gang.all_reduce(size),
        }
        logging.info("writing and reading a checkpoint of %s", data_size(size))
        return facts | gang.checkpoint(spec.checkpoint_dir, size)


class _Gang:
    """The workers of the check, as one of them sees them."""

    def __init__(
        self, distribution: tf.distribute.Strategy, cluster: ClusterSpec, workers: int
    ):
        self._strategy, self._cluster = distribution, cluster
        self._agreement = Agreement(distribution, workers)
        self._tasks = cluster.tasks
        self._here = self._tasks.index(required(cluster.task))
        self.names = [task.name for task in self._tasks]

    def gathered(self, value: float) -> list[float]:
        """The value of each worker, in the order of `names`."""
        row = np.zeros(len(self._tasks))
        row[self._here] = value
        return list(self._agreement.total(*row))

    def links(self, size: int) -> list[dict[str, Any]]:
        """The exchange of each two workers while the others wait."""
        links, sent = [], min(size, _LINK_BYTES)
        pairs = itertools.combinations(range(len(self._tasks)), 2)
        for number, pair in enumerate(pairs):
            times = [0.0, 0.0]
            if self._here in pair:
                exchange = _Exchange(_GROUP + number, [self.names[i] for i in pair])
                times = [exchange.seconds(_ROUND_TRIP_BYTES), exchange.seconds(sent)]
            # Both have measured; this also lets the others wait for their turn.
            round_trip, whole = (x / 2 for x in self._agreement.total(*times))
            links.append(
                {
                    "workers": [self.names[i] for i in pair],
                    "round_trip": round_trip,
                    "bytes_per_second": sent / whole,
                }
            )
        return links

    def all_reduce(self, size: int) -> float:
        """Seconds of an exchange as gradients have it, on the training's devices."""

        def of_replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            # No constant: TensorFlow would compute it while it is traced.
            gradient = tf.fill([size // 4], tf.random.uniform([]))
            return context.all_reduce("SUM", gradient)[0]

        run = tf.function(lambda: self._strategy.run(of_replica))

        def exchange() -> None:
            for value in self._strategy.experimental_local_results(run()):
                value.numpy()

        return max(self.gathered(_median_seconds(exchange)))

    def checkpoint(self, folder: str, size: int) -> dict[str, Any]:
        """Seconds in which the chief saves, and in which each worker restores."""
        store = checkpoints.of(folder, keep=1, is_chief=self._cluster.is_chief)
        with tf.device("/CPU:0"):
            part = tf.Module()
            part.value = tf.Variable(tf.zeros([size // 4]), trainable=False)

        def save() -> None:
            store.save(1, {"model": part}, {}, {})
            store.finish()

        def restore() -> None:
            stored_variables.read(part, f"{store.find(1).path}/model")

        saved = max(self.gathered(_seconds(save)))
        restored = self.gathered(_seconds(restore))
        if self._cluster.is_chief:
            storage.remove(folder)
        return {"save": saved, "restore": restored}


class _Exchange:
    """An exchange between this worker and another one, by the training's own channel.

    Args:
      group: A number of its own, the same in both workers.
      names: The two workers.
    """

    def __init__(self, group: int, names: Sequence[str]):
        self._group, self._names = group, names
        self._done = group * 2 * (_TRIES + 1)  # no number occurs in two groups

    def seconds(self, size: int) -> float:
        """The time in which each of them sends `size` bytes to the other.

        Raises:
          UserError: One does not reach the other.
        """
        with tf.device("/CPU:0"):
            tensor = tf.zeros([size // 4])
        try:
            return _median_seconds(lambda: self._add(tensor))
        except tf.errors.OpError as error:
            raise UserError(
                f"{self._names[0]} and {self._names[1]} do not reach each other: "
                f"{error.message.splitlines()[0]}. A firewall or a proxy between their "
                "hosts may be the reason."
            ) from error

    def _add(self, tensor: tf.Tensor) -> None:
        self._done += 1
        with tf.device("/CPU:0"):
            total = tf.raw_ops.CollectiveReduceV2(
                input=tensor,
                group_size=2,
                group_key=self._group,
                instance_key=self._done,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                communication_hint="ring",
                timeout_seconds=_LINK_SECONDS,
            )
        total[0].numpy()


def _operations_per_second() -> float:
    """The speed of this worker's first device, in floating-point operations."""
    matrix = tf.ones([_SIDE, _SIDE])

    def multiply() -> None:
        tf.matmul(matrix, matrix)[0, 0].numpy()

    return 2 * _SIDE**3 / _median_seconds(multiply)


def _median_seconds(do: Callable[[], None]) -> float:
    """The median time of several tries, after one that prepares."""
    do()
    return statistics.median(_seconds(do) for _ in range(_TRIES))


def _seconds(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began
