"""Divides the batches of a split among the replicas of a strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

Feed = Callable[..., tf.data.Dataset]

_lasting: list[Any] = []  # iterators


def batches(strategy: tf.distribute.Strategy, feed: Feed) -> Any:
    """The input of `fit` under `strategy`; under the default one, a plain dataset.

    Args:
      strategy: The strategy of this process.
      feed: Called as `feed(replicas=…, share=…)` for each input pipeline of this
        process, usually `functools.partial(split.shuffled, …)`. Its dataset has no end.
    """

    def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pipelines, replicas = context.num_input_pipelines, context.num_replicas_in_sync
        share = share_of(context.input_pipeline_id, pipelines, replicas)
        return feed(replicas=replicas, share=share)

    dataset = strategy.distribute_datasets_from_function(of_pipeline)
    return dataset if isinstance(dataset, tf.data.Dataset) else _Lasting(dataset)


class _Lasting(tf.distribute.DistributedDataset):
    """A dataset with one iterator, which lasts as long as this process.

    TensorFlow gives the iterator of each replica a thread that tunes it, which no
    option of the dataset turns off. If the iterator is removed, that thread may miss
    the call to end, and sleeps on for as long as the iterator has been in use, up to a
    minute, while Python stands still. (`Model::OptimizeLoop` looks whether it was
    cancelled before `CancellationManager` says so.)

    Args:
      dataset: From `distribute_datasets_from_function`, without an end.
    """

    def __init__(self, dataset: tf.distribute.DistributedDataset):
        self._dataset = dataset
        self._iterator: Any = None

    def __iter__(self) -> Iterator[Any]:
        """The iterator, the same one in each call."""
        if self._iterator is None:
            self._iterator = iter(self._dataset)
            _lasting.append(self._iterator)
        return self._iterator

    @property
    def element_spec(self) -> Any:
        """The types of an element."""
        return self._dataset.element_spec


def share_of(pipeline: int, pipelines: int, replicas: int) -> range:
    """The replicas that an input pipeline feeds; all pipelines feed equally many.

    Args:
      pipeline: Number of the pipeline, from 0.
      pipelines: Number of pipelines.
      replicas: Number of replicas, over all pipelines.
    """
    local = replicas // pipelines
    return range(pipeline * local, (pipeline + 1) * local)
