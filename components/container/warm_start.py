"""Prepares a process that runs nodes: one import of TensorFlow for all its workers."""

from __future__ import annotations

import os

from strategos.components import fork_server, worker_process


def prepare(*closed: int) -> None:
    """Imports TensorFlow, starts the fork server, and sets TensorFlow's threads here.

    Args:
      *closed: File descriptors of this process that workers must not keep open.
    """
    with fork_server.without_collections():
        # What training, the export and the InfraValidator's probe import, and helpers.
        from strategos.components.evaluator import scoring  # noqa: F401
        from strategos.components.example_gen import writing  # noqa: F401
        from strategos.components.statistics_gen import executor  # noqa: F401
        from strategos.components.trainer.run import session  # noqa: F401
        from strategos.components.transform import materialize  # noqa: F401
    fork_server.start(*closed)
    _use_one_thread()


def _use_one_thread() -> None:
    """Lets TensorFlow work as in a helper; a variable would reach the Trainer."""
    import tensorflow as tf

    intra, inter = worker_process.ONE_THREAD
    if intra not in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if inter not in os.environ:
        tf.config.threading.set_inter_op_parallelism_threads(1)
