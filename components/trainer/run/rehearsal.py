"""Traces the export of the untrained model beside the gang.

So a model that cannot be exported is rejected early, not after the training; one that
takes a few seconds is exported before a rehearsal could say anything. A fork of the
gang's host traces, with low priority and without GPUs: the training processes do
nothing for it. Only a definite error counts: a fork that is killed or lacks memory or
disk says nothing about the export.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components import worker_process
from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3, tracing
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.distribution.strategy import Choice
from strategos.components.trainer.gang.task_process import TaskProcess, kill
from strategos.components.trainer.gang.watchdog import log
from strategos.components.trainer.model import workload
from strategos.components.trainer.model.tables import relations
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.run.export import export
from strategos.components.trainer.run.session import configure
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed import sample
from strategos.components.transformed.graph import TransformGraph, raw_schema_file
from strategos.components.user_code import modules

_NICENESS = 15
_BEGIN_SECONDS = 5.0  # after the gang
_STEPS = 100  # of an epoch: the rows are not counted here
_LARGEST = 10**9  # bytes of weights
_DEATH_SECONDS = 5.0
_PASSING = (OSError, MemoryError, tf.errors.ResourceExhaustedError)


class Rehearsal:
    """An export of the untrained model in a process beside the gang.

    Args:
      spec: The training.
      choice: Its strategy.
    """

    def __init__(self, spec: WorkerSpec, choice: Choice):
        self._process = TaskProcess(
            "the rehearsal of the export",
            lambda _: _rehearse(spec, choice),
            prefixed=False,
            alone=True,
        )

    def check(self) -> None:
        """Raises the error of the rehearsal, once it has failed.

        Raises:
          UserError: The model cannot be exported.
        """
        process = self._process
        if process.ended:
            return
        for _, take in process.sources():
            take()
        process.reap()
        failure = process.failure
        if failure and failure.permanent:
            if isinstance(failure.error, UserError):
                raise failure.error
            raise UserError(f"the model cannot be exported: {failure.error}")
        if process.answer is not None:
            self.end()

    def end(self) -> None:
        """Ends the process, whatever it has found."""
        kill([self._process], time.monotonic() + _DEATH_SECONDS)


@contextlib.contextmanager
def rehearsed(
    spec: WorkerSpec, choice: Choice, here: ClusterSpec
) -> Iterator[Callable[[], None]]:
    """Rehearses the export inside of the `with` block; yields `Rehearsal.check`.

    Only the chief's host rehearses: the others do not export. A stock module with
    `run_fn(fn_args)` exports by itself: nothing is rehearsed.

    Args:
      spec: The training.
      choice: The strategy of the training.
      here: All tasks, and the task of this host.
    """
    if not here.is_chief or modules.takes_fn_args(spec.folder, spec.module):
        yield lambda: None
        return
    rehearsal = Rehearsal(spec, choice)
    try:
        yield rehearsal.check
    finally:
        rehearsal.end()


def _rehearse(spec: WorkerSpec, choice: Choice) -> dict[str, Any]:
    os.nice(_NICENESS)
    time.sleep(_BEGIN_SECONDS)
    os.environ |= worker_process.NO_GPU
    try:
        _export_untrained(spec, choice)
    except Exception as error:
        if not _is_passing(error):
            raise
        log(f"the export is not rehearsed: {error}")
    return {}


def _is_passing(error: BaseException | None) -> bool:
    """Whether memory or disk was missing, for the error or its cause."""
    while error is not None:
        if isinstance(error, _PASSING):
            return True
        error = error.__cause__
    return False


def _export_untrained(spec: WorkerSpec, choice: Choice) -> None:
    examples = sample.load(spec.transform_graph)
    if not examples:
        return
    configure(spec)
    logging.getLogger().setLevel(logging.WARNING)  # the training logs the same
    code = UserModule(spec, choice.name)
    rows = _STEPS * spec.batch_size
    context = workload.context(spec, rows, choice.replicas or 1)
    graph = TransformGraph(context.transform_output)
    raw = tf.io.parse_example(examples, graph.raw_spec)
    features = graph.transform(
        raw, set(graph.outputs) - {*context.target.withheld, context.weight}
    )
    try:
        model = code.build_model(context)
        tracing.shapes(lambda: model(keras3.taken(model, features), training=False))
    except Exception as error:  # the training meets it as well, and explains it better
        log(f"the export is not rehearsed: {error}")
        return
    if sum(map(_size, model.trainable_variables)) > _LARGEST:
        return
    with (
        tempfile.TemporaryDirectory(prefix="rehearsal-") as folder,
        code.blamed("the model cannot be exported"),
    ):
        relations.find(model, features, graph.ids(), context.label)
        schema = raw_schema_file(spec.transform_graph)
        export(model, context, schema, folder, spec.null_values, graph, spec.reading)


def _size(variable: Any) -> int:
    """Bytes of a variable of either Keras."""
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
