"""Prepares a process that runs nodes: one import of TensorFlow for all its workers."""

from __future__ import annotations

import importlib
import os

from strategos.components import fork_server, processes, worker_process
from strategos.components.trainer.distribution.environment import visible_gpus

IMPORTS = (
    "strategos.components.data_files.writing",
    "strategos.components.evaluation.scoring",
    "strategos.components.statistics_gen.executor",
    "strategos.components.trainer.run.session",
    "strategos.components.transform.materialize",
)
"""Imports of training, the export, the InfraValidator's probe, and helpers."""


def prepare(*closed: int) -> None:
    """Imports TensorFlow, starts the fork server, and sets threads and devices here.

    This process executes nodes while the Trainer's processes use the GPUs, so it uses
    no GPU itself.

    Args:
      *closed: File descriptors of this process that workers must not keep open.
    """
    with processes.without_collections():
        for name in IMPORTS:
            importlib.import_module(name)
    fork_server.start(*closed)
    _work_as_helpers()


def _work_as_helpers() -> None:
    """Lets TensorFlow work as in a helper; variables would reach the Trainer."""
    import tensorflow as tf

    if visible_gpus():  # else CUDA would be loaded in vain
        tf.config.set_visible_devices([], "GPU")
    intra, inter = worker_process.ONE_THREAD
    if intra not in os.environ:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    if inter not in os.environ:
        tf.config.threading.set_inter_op_parallelism_threads(1)
