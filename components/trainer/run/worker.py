"""The host of a gang: forks the tasks that train, then one that exports.

`python -m strategos.components.trainer.run.worker`, started by a launcher. This process
imports TensorFlow, runs nothing with it, and forks one process per task. When the tasks
have written the weights and ended, one more fork, as fresh as they were, builds the
model again, reads the weights, evaluates and exports: the SavedModel holds nothing of
the training strategy. The exporting process is watched like the tasks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from strategos.components import events, exported, fork_server
from strategos.components.errors import BadInputError, UserError
from strategos.components.files import places, storage
from strategos.components.trainer import finished, remote_checkpoints
from strategos.components.trainer.compat.autograph import convert_user_code_only
from strategos.components.trainer.distribution import strategy
from strategos.components.trainer.distribution.environment import (
    CLUSTER_VARIABLES,
    ClusterSpec,
    Task,
)
from strategos.components.trainer.gang import gang, heartbeat, watchdog
from strategos.components.trainer.gang.ports import Ports
from strategos.components.trainer.hosts import worker
from strategos.components.trainer.hosts.membership import Membership
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import uses
from strategos.components.worker_process import WorkerError, serve


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Trains and exports.

    Args:
      request: `spec`, a `WorkerSpec`, and `operation`, an `Operation`, as JSON. With
        `membership`, the training spans several hosts: this host runs the task that
        TF_CONFIG names, and exports if the task is the chief.

    Returns:
      The facts of the training; empty if another host exports.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
    """
    spec = WorkerSpec.from_json(request["spec"])
    operation = Operation.from_json(request["operation"])
    here = ClusterSpec.from_environment()
    for variable in CLUSTER_VARIABLES:  # each task gets its own value
        os.environ.pop(variable, None)
    if "membership" not in request:
        return _train(spec, operation, here)
    membership = Membership(cluster=here, **request["membership"])
    with worker.failures_reported(membership):
        return _train(spec, operation, here, membership)


def _train(
    spec: WorkerSpec,
    operation: Operation,
    here: ClusterSpec,
    membership: Membership | None = None,
) -> dict[str, Any]:
    """Trains in a gang: on this machine alone or, with `membership`, as one task."""
    choice = strategy.choose(spec.distribution, here, spec.settings)
    strategy.check_min_workers(operation.min_workers, choice)
    events.emit("progress", message="importing TensorFlow")
    logging.getLogger("absl").addFilter(_is_true)
    if operation.check_bytes:
        return _checked(spec, operation, here, choice, membership)
    from strategos.components.trainer.run import rehearsal, session

    convert_user_code_only()
    if operation.from_scratch:
        storage.remove(spec.checkpoint_dir)
    limits = watchdog.Limits.of(operation)
    with tempfile.TemporaryDirectory(prefix="weights-") as folder:
        local = finished.with_local_outputs(spec, folder)

        def train(cluster: ClusterSpec, *_: Any) -> dict[str, Any]:
            with uses.recording():
                return session.train(local, operation, cluster, f"{folder}/weights")

        facts = None if membership else finished.take_weights(spec, folder)
        if facts:
            text = "exporting the weights of a run whose export had failed"
            events.emit("note", message=text)
        else:
            with rehearsal.rehearsed(spec, choice, here) as check:
                facts = _in_gang(spec, here, choice, train, limits, check, membership)
        if not facts:
            return {}
        with _weights_kept(spec, folder, facts):
            return _export(spec, facts, folder, limits)


def _checked(
    spec: WorkerSpec,
    operation: Operation,
    here: ClusterSpec,
    choice: strategy.Choice,
    membership: Membership | None,
) -> dict[str, Any]:
    """Measures the cluster instead of training; {} if another host has the facts."""
    if choice.name != "multi_worker_mirrored":
        raise BadInputError(
            "has no workers that exchange gradients, so there is nothing to check",
            key="trainer.distribution.strategy",
            received=choice.name,
            remedy="Add `--set trainer.distribution.strategy=multi_worker_mirrored`.",
        )
    from strategos.components.trainer.run import cluster_check

    def check(cluster: ClusterSpec, *_: Any) -> dict[str, Any]:
        return cluster_check.run(spec, cluster, operation.check_bytes)

    limits = watchdog.Limits.of(operation)
    return _in_gang(spec, here, choice, check, limits, lambda: None, membership) or {}


def _is_true(record: logging.LogRecord) -> bool:
    """False for TFT's demand to set the variable of tf-keras: it needs none."""
    return not str(record.msg).startswith(f"{fork_server.KERAS} is set to")


def _in_gang(
    spec: WorkerSpec,
    here: ClusterSpec,
    choice: strategy.Choice,
    train: gang.Work,
    limits: watchdog.Limits,
    check: Callable[[], None],
    membership: Membership | None,
) -> dict[str, Any] | None:
    """The facts of the training; None if another host exports."""
    if membership:
        return worker.train(membership, here, train, limits, check)
    clusters, folder = _on_free_ports(here, choice), places.at(spec.checkpoint_dir)
    newest = functools.partial(remote_checkpoints.newest_complete, folder)
    return gang.run(choice.tasks, clusters, train, limits, beside=check, newest=newest)


@contextlib.contextmanager
def _weights_kept(
    spec: WorkerSpec, weights: str, facts: dict[str, Any]
) -> Iterator[None]:
    """Keeps the weights if the export fails; the error names the next steps."""
    try:
        yield
    except (UserError, WorkerError) as error:
        if "exported" in facts:  # by a stock module: no weights are known
            raise
        try:
            kept = finished.keep_weights(spec, weights, facts)
        except Exception as full:  # of either file system
            watchdog.log(f"the weights cannot be kept: {full}")
            raise error from None
        advice = (
            "The training is not lost. With unchanged code (a package installed, a "
            "disk freed), the next run only exports. After a change of the code, start "
            f"from the weights: strategos run --set trainer.warm_start={kept}"
        )
        if isinstance(error, UserError):
            remedy = " ".join(filter(None, (error.remedy, advice)))
            raise error.but(remedy=remedy) from error
        raise WorkerError(f"{str(error).rstrip('. ')}. {advice}") from error


def _on_free_ports(
    here: ClusterSpec, choice: strategy.Choice
) -> Callable[[int], ClusterSpec]:
    """Returns the cluster of the n-th attempt; without addresses for a single task."""
    ports, tasks = Ports(), choice.tasks

    def cluster_of(_: int) -> ClusterSpec:
        local = ClusterSpec()
        if len(tasks) > 1:
            ports_of = ports.take(len(tasks))
            local = ClusterSpec.of(tasks, [f"127.0.0.1:{port}" for port in ports_of])
        return dataclasses.replace(local, tpu=here.tpu, gpus=here.gpus)

    return cluster_of


def _export(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, limits: watchdog.Limits
) -> dict[str, Any]:
    """Evaluates, exports and publishes the trained model, in a separate process.

    Returns:
      The facts, with the evaluation.
    """
    events.emit("progress", message="evaluating and exporting")

    def export(*_: Any) -> dict[str, Any]:
        with heartbeat.keep_alive():
            return _evaluate_and_publish(spec, facts, weights)

    try:
        facts_of_export = gang.run(
            (Task("chief"),), lambda _: ClusterSpec(), export, limits, name="the export"
        )
    finally:
        local = finished.with_local_outputs(spec, weights)
        storage.remove(f"{local.model_dir}/{finished.ASIDE}")
    return {**facts_of_export, "restarts": facts["restarts"]}  # of the training


def _evaluate_and_publish(
    spec: WorkerSpec, facts: dict[str, Any], weights: str
) -> dict[str, Any]:
    """Runs in the exporting fork, possibly after an earlier one that was killed."""
    from strategos.components.trainer.run import session

    local = finished.with_local_outputs(spec, weights)
    finished.clear(local.model_dir)
    aside = f"{local.model_dir}/{finished.ASIDE}/{exported.SERVING_DIR}"
    prefix = f"{weights}/weights"
    with uses.recording():
        evaluation = session.evaluate_and_export(local, facts, prefix, aside)
    facts = {**facts, "evaluation": evaluation}
    finished.publish(spec, weights, facts)
    return facts


if __name__ == "__main__":
    serve(work)
