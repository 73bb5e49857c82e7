"""What TensorFlow's debugger records of a task: its graphs, and results of operations.

TensorBoard's plug-in Debugger V2 shows it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import tensorflow as tf

from strategos.components import events
from strategos.components.trainer.distribution.environment import ClusterSpec

_EVENTS = 1_000
"""Newest executions, and newest results of operations within graphs, that are kept."""


@contextlib.contextmanager
def recorded(folder: str, cluster: ClusterSpec) -> Iterator[None]:
    """Records a task until the end of the block, also if the block fails.

    Of each result, the numbers of values that are NaN, infinite, negative, zero and
    positive are recorded, with its shape and dtype (`FULL_HEALTH`).

    Args:
      folder: Gets a folder named after task and time; "" records nothing.
      cluster: The task of this process.
    """
    if not folder:
        yield
        return
    task = cluster.task.name if cluster.task else "host"
    own = os.path.join(folder, f"{task}-{time.strftime('%Y%m%d-%H%M%S')}")
    debugging = tf.debugging.experimental
    writer = debugging.enable_dump_debug_info(own, "FULL_HEALTH", _EVENTS)
    if cluster.is_chief:
        command = f"strategos tensorboard --dump {folder}"
        events.emit("note", message=f"recording for TensorFlow's debugger: {command}")
    try:
        yield
    finally:
        writer.FlushNonExecutionFiles()
        writer.FlushExecutionFiles()  # the newest events, from memory
        debugging.disable_dump_debug_info()
