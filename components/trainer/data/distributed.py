"""Divides the batches of a split among the replicas of a strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Feed = Callable[..., tf.data.Dataset]


def batches(strategy: tf.distribute.Strategy, feed: Feed) -> Any:
    """The input of `fit` under `strategy`; under the default one, a plain dataset.

    Args:
      strategy: The strategy of this process.
      feed: Called as `feed(replicas=…, share=…)` for each input pipeline of this
        process, usually `functools.partial(split.shuffled, …)`.
    """

    def of_pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        pipelines, replicas = context.num_input_pipelines, context.num_replicas_in_sync
        share = share_of(context.input_pipeline_id, pipelines, replicas)
        return feed(replicas=replicas, share=share)

    return strategy.distribute_datasets_from_function(of_pipeline)


def share_of(pipeline: int, pipelines: int, replicas: int) -> range:
    """The replicas that an input pipeline feeds; all pipelines feed equally many.

    Args:
      pipeline: Number of the pipeline, from 0.
      pipelines: Number of pipelines.
      replicas: Number of replicas, over all pipelines.
    """
    local = replicas // pipelines
    return range(pipeline * local, (pipeline + 1) * local)
