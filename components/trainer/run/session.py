"""One training run from a `WorkerSpec`: train in one process, export in another."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import Any

import tensorflow as tf
import tf_keras

from strategos.components import events
from strategos.components.targets.label import Label
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.data.split import Split
from strategos.components.trainer.distribution import devices, strategy
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang import heartbeat, preemption
from strategos.components.trainer.loop.model_builder import configure_step
from strategos.components.trainer.loop.progress import numerics_checked, recorded
from strategos.components.trainer.loop.servers import asynchronous
from strategos.components.trainer.loop.state import saved_weights
from strategos.components.trainer.loop.training import Training
from strategos.components.trainer.model import out_of_memory, workload
from strategos.components.trainer.model.comparison import answers, structure
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.tables import record, relations
from strategos.components.trainer.model.user_module import UserModule
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.run import tfx_run_fn, verification
from strategos.components.trainer.run.export import beside_label, export
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.transformed import sample
from strategos.components.transformed.graph import TransformGraph, raw_schema_file
from strategos.components.user_code import modules
from strategos.components.wording import listed, quoted

_FEW = 4  # rows from each end of a split: what a batch has beside them must not matter


def train(
    spec: WorkerSpec, operation: Operation, cluster: ClusterSpec, weights: str
) -> dict[str, Any]:
    """Trains as one task of a cluster.

    Args:
      spec: The training.
      operation: Launcher, time-outs, restarts and checkpoints.
      cluster: All tasks, and the task of this process.
      weights: Prefix of the files that get the chief's weights.

    Returns:
      The facts that become properties of the Model artifact, without `restarts`.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
      Preempted: A worker received SIGTERM; all have saved.
    """
    heartbeat.current().joined()
    configure(spec)
    # Not the launcher's choice: each process has the devices of its own host.
    choice = strategy.choose(spec.distribution, cluster, spec.settings)
    if not choice.is_synchronous and not cluster.is_chief:
        asynchronous.serve(cluster)
    with recorded(operation.dump, cluster):
        if modules.takes_fn_args(spec.folder, spec.module):
            with numerics_checked(operation):
                return tfx_run_fn.train(spec, cluster, choice, f"{weights}-exported")
        distribution = strategy.build(choice, spec.distribution, cluster)
        preemption.install_handler()
        return Training(spec, operation, cluster, choice, distribution).run(weights)


def evaluate_and_export(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, folder: str
) -> dict[str, float]:
    """Builds the model from the written weights, evaluates it and writes a SavedModel.

    Args:
      spec: The training.
      facts: The facts that `train` returned.
      weights: Prefix of the files with the weights.
      folder: Folder that gets the SavedModel.

    Returns:
      Metrics on the evaluation split; empty for a model that `run_fn(fn_args)`
      exported.

    Raises:
      UserError: The user's code fails.
    """
    if "exported" in facts:
        tfx_run_fn.publish(spec, facts["exported"], folder)
        return {}
    devices.configure("one_device", "GPU", 1)
    configure(spec)
    code = UserModule(spec, facts["strategy"])
    evaluation = workload.split(spec, spec.eval_files, spec.eval_rows)
    context = workload.context(spec, facts["rows"], facts["replicas"])
    model = _rebuilt(code, context, evaluation, weights)
    with code.blamed("the model cannot be exported"):
        # Before the first evaluation: a layer may change its weights in each call.
        _export(model, spec, context, evaluation, weights, folder)
    # This process has one device: it takes the batches of one replica, unless the value
    # of the loss depends on their size.
    size = context.per_replica_batch_size
    if facts.get("loss_sums_rows"):
        size = context.global_batch_size
    batches = keras3.batches(model, evaluation.ordered)(size)

    def evaluate() -> dict[str, float]:
        with code.blamed("evaluation fails"), out_of_memory.explained(context):
            metrics = model.evaluate(batches, verbose=0, return_dict=True)
        return {name: float(value) for name, value in metrics.items()}

    trained = answers.read(weights)
    if not trained:
        metrics = evaluate()
    else:
        with verification.saved_answers(folder, spec.transform_graph) as saved:
            metrics = evaluate()
        rebuilt, few = (
            answers.of(model, evaluation.ends(rows)) for rows in (sample.ROWS, _FEW)
        )
        allowed = answers.tolerance(model)
        verification.check_answers(rebuilt, saved.result(), trained, allowed)
        verification.warn_of_neighbours(rebuilt, few, allowed)
    verification.check_metrics(model, facts, metrics, evaluate, evaluation.rows)
    return metrics


def _export(
    model: tf.keras.Model,
    spec: WorkerSpec,
    context: TrainingContext,
    evaluation: Split,
    weights: str,
    folder: str,
) -> None:
    """Writes the SavedModel and, beside the weights, the meaning of tables' rows."""
    graph = TransformGraph(context.transform_output)
    features, _ = evaluation.sample(relations.ROWS)
    tables = relations.find(model, features, graph.ids(), context.label)
    record.write(tables, weights)  # first: the weights are kept if the export fails
    _warn_of_columns_beside_label(model, graph, context.target)
    raw_schema = raw_schema_file(spec.transform_graph)
    arguments = spec.null_values, graph, spec.reading
    export(model, context, raw_schema, folder, *arguments)


def _warn_of_columns_beside_label(
    model: tf.keras.Model, graph: TransformGraph, label: Label
) -> None:
    """Names features of columns from which the label is made, too."""
    if label.reconstructs:
        return
    names = [name for name in keras3.inputs_of(model) if name in graph.outputs]
    shared = beside_label(label, graph, names)
    if shared:
        columns = listed(quoted(sorted(set().union(*shared.values()))))
        events.emit(
            "warning",
            message=f"the label `{label.name}` is made of {columns}, and so "
            f"{'is' if len(shared) == 1 else 'are'} {listed(quoted(sorted(shared)))}: "
            "these columns must be known when the model predicts",
        )


def _rebuilt(
    code: UserModule,
    context: TrainingContext,
    evaluation: Split,
    weights: str,
) -> tf.keras.Model:
    """Builds the model and reads its weights."""
    model = code.build_model(context)
    features, _ = evaluation.sample(1)
    with code.blamed("the model fails on the first row of the evaluation split"):
        model(keras3.taken(model, features), training=False)
    saved_weights.read(model, weights)
    written = structure.read(weights)
    structure.check(structure.of(model), written, "for the export", "for the training")
    return model


def untrained(
    spec: WorkerSpec, strategy_name: str, replicas: int
) -> tuple[tf.keras.Model, Split]:
    """Builds the model before its first step, outside of any strategy.

    Args:
      spec: The training.
      strategy_name: Name of the strategy that the model is checked for.
      replicas: Copies of the model that would train together.

    Returns:
      The compiled model, and the training examples.

    Raises:
      UserError: The user's code or data cannot be trained with.
    """
    configure(spec)
    training = workload.split(spec, spec.train_files)
    training = workload.with_class_weights(spec, training)
    code = UserModule(spec, strategy_name)
    model = code.build_model(workload.context(spec, training.rows, replicas))
    if code.run_fn is None:
        outputs = code.outputs(model, training)
        code.check(model, outputs, training)
        settings = dataclasses.replace(spec.settings, steps_per_execution=1)
        configure_step(model, settings)
    return model, training


def configure(spec: WorkerSpec) -> None:
    """Sets this process's seeds, precision, determinism and logging.

    Args:
      spec: The training.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)
    tf.get_logger().setLevel(logging.WARNING)
    tf.get_logger().propagate = False  # this logger has its own handler
    logging.getLogger("absl").addFilter(_is_news)
    tf_keras.utils.set_random_seed(spec.seed)
    if spec.settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    if spec.settings.mixed_precision:
        policy = f"mixed_{spec.settings.mixed_precision}"
        tf_keras.mixed_precision.set_global_policy(policy)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log record is a warning or not TensorFlow's own."""
    of_tensorflow = "/site-packages/tensorflow" in record.pathname
    return record.levelno > logging.INFO or not of_tensorflow
