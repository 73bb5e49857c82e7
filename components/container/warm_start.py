"""Prepares a process that runs nodes: one import of TensorFlow for all its workers."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Sequence

from strategos.components import fork_server, processes, worker_process
from strategos.components.trainer.distribution.environment import visible_gpus

TRAINING = (
    "strategos.components.trainer.run.session",
    "strategos.components.evaluation.scoring",
)
"""Imports of training, the export, the InfraValidator's probe, and the Evaluator's
helpers.
"""

IMPORTS = (
    *TRAINING,
    "strategos.components.data_files.writing",
    "strategos.components.statistics_gen.executor",
    "strategos.components.transform.materialize",
)
"""Imports of all helpers; those of the nodes before the Trainer take a second more."""

_TRAINER = (
    "tfx.orchestration.portable.python_executor_operator",
    "strategos.components.trainer.executor",
)
_AFTER_TRAINING = (
    "tfx.orchestration.portable.beam_executor_operator",
    "strategos.components.evaluator.executor",
    "strategos.components.infra_validator.executor",
    "strategos.components.pusher.executor",
)
_NICENESS = 15


def prepare(*closed: int, imports: Sequence[str] = IMPORTS) -> None:
    """Imports TensorFlow, starts the fork server, and sets threads and devices here.

    This process executes nodes while the Trainer's processes use the GPUs, so it uses
    no GPU itself.

    Args:
      *closed: File descriptors of this process that workers must not keep open.
      imports: What the processes that it starts find imported.
    """
    with processes.without_collections():
        for name in imports:
            importlib.import_module(name)
    fork_server.start(*closed)
    _work_as_helpers()


def import_beside() -> None:
    """Imports what the nodes after the Trainer need, beside the training.

    In a thread that gets what the training leaves of the processors. It begins after
    the Trainer's own imports: packages that import each other in a circle must not be
    imported by two threads at a time.
    """
    for name in _TRAINER:
        importlib.import_module(name)

    def load() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        for name in _AFTER_TRAINING:
            importlib.import_module(name)

    threading.Thread(target=load, daemon=True).start()


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
