"""One training run, from a `WorkerSpec`: train in one process, export in another."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import Any

import tensorflow as tf

from strategos.components.trainer.cluster import devices, strategy
from strategos.components.trainer.cluster.environment import ClusterSpec
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.data import dataset
from strategos.components.trainer.gang import heartbeat, preemption
from strategos.components.trainer.loop import parameter_server
from strategos.components.trainer.loop.asynchronous import AsyncTraining
from strategos.components.trainer.loop.checkpoints import read_weights
from strategos.components.trainer.loop.synchronous import Training, configure_step
from strategos.components.trainer.model import out_of_memory, workload
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import tfx_run_fn
from strategos.components.trainer.run.export import export
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_code import modules


def train(
    spec: WorkerSpec, operation: Operation, cluster: ClusterSpec, weights: str
) -> dict[str, Any]:
    """Trains as `spec` says, as one task of `cluster`.

    Args:
      spec: What is trained.
      operation: How it is run.
      cluster: Whom this process trains with.
      weights: What the files that get the chief's weights begin with.

    Returns:
      The facts that the Model artifact carries, `restarts` excepted.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      Preempted: SIGTERM came to one of the workers; all have saved.
    """
    heartbeat.current().joined()
    configure(spec)
    choice = strategy.choose(spec.distribution, cluster, spec.settings)
    if not choice.is_synchronous and not cluster.is_chief:
        parameter_server.serve(cluster)
    if modules.takes_fn_args(spec.folder, spec.module):
        return tfx_run_fn.train(spec, cluster, choice, f"{weights}-exported")
    distribution = strategy.build(choice, spec.distribution, cluster)
    preemption.install_handler()
    kind = Training if choice.is_synchronous else AsyncTraining
    return kind(spec, operation, cluster, choice, distribution).run(weights)


def evaluate_and_export(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, folder: str
) -> dict[str, float]:
    """Builds the model anew from `weights` and writes it to `folder` as a SavedModel.

    Returns:
      Its metrics on the evaluation split; none of a model that came exported.
    """
    if "exported" in facts:
        tfx_run_fn.publish(spec, facts["exported"], folder)
        return {}
    devices.configure("one_device", "GPU", 1)
    configure(spec)
    code = UserModule(spec, facts["strategy"])
    evaluation = workload.split(spec, spec.eval_files)
    context = workload.context(spec, facts["rows"], facts["replicas"])
    model = code.build_model(context)
    features, _ = evaluation.sample(1)
    with code.blamed("the model fails on the first row of the evaluation split"):
        model(keras3.taken(model, features), training=False)
    read_weights(model, weights)
    # This process is one device: it takes what a replica took.
    batches = keras3.batches(model, evaluation.ordered)(context.per_replica_batch_size)
    with code.blamed("evaluation fails"), out_of_memory.explained(context):
        found = model.evaluate(batches, verbose=0, return_dict=True)
    with code.blamed("the model cannot be exported"):
        export(model, context, spec.schema_file, folder)
    return {name: float(value) for name, value in found.items()}


def untrained(
    spec: WorkerSpec, strategy_name: str, replicas: int
) -> tuple[tf.keras.Model, dataset.Split]:
    """The model before its first step, outside of any strategy, and its examples."""
    configure(spec)
    training = workload.split(spec, spec.train_files)
    code = UserModule(spec, strategy_name)
    model = code.build_model(workload.context(spec, training.rows, replicas))
    if code.run_fn is None:
        code.check(model, training, tf.distribute.get_strategy())
        settings = dataclasses.replace(spec.settings, steps_per_execution=1)
        configure_step(model, settings)
    return model, training


def configure(spec: WorkerSpec) -> None:
    """Seeds, precision, determinism and logging of this process."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)
    tf.get_logger().setLevel(logging.WARNING)
    tf.get_logger().propagate = False  # it has a handler of its own
    logging.getLogger("absl").addFilter(_is_news)
    tf.keras.utils.set_random_seed(spec.seed)
    if spec.settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    if spec.settings.mixed_precision:
        policy = f"mixed_{spec.settings.mixed_precision}"
        tf.keras.mixed_precision.set_global_policy(policy)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line is more than TensorFlow's own chatter in absl's log."""
    of_tensorflow = "/site-packages/tensorflow" in record.pathname
    return record.levelno > logging.INFO or not of_tensorflow
