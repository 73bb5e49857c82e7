"""One training run, from a `WorkerSpec`: train in one process, export in another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components import events, user_code
from strategos.components.errors import UserError
from strategos.components.trainer import (
    callbacks,
    custom_loop,
    dataset,
    keras3,
    last_batch,
    layers,
    learning_rate,
    loop,
    memory,
    parameter_server,
    preemption,
    reports,
    stock,
    strategy,
)
from strategos.components.trainer.agreement import Agreement
from strategos.components.trainer.checkpoints import (
    Checkpoints,
    read_weights,
    warm_start,
    write_weights,
)
from strategos.components.trainer.cluster import ClusterSpec
from strategos.components.trainer.context import TrainingContext
from strategos.components.trainer.export import export
from strategos.components.trainer.keeper import Cadence, Keeper
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.position import Position
from strategos.components.trainer.progress import Progress, Recorder, TerminateOnNaN
from strategos.components.trainer.spec import Settings, WorkerSpec
from strategos.components.trainer.user_module import UserModule


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
    reports.current().joined()
    configure(spec)
    choice = strategy.choose(spec.distribution, cluster, spec.settings)
    if not choice.is_synchronous and not cluster.is_chief:
        parameter_server.serve(cluster)
    if stock.is_stock(spec.folder, spec.module):
        return stock.train(spec, cluster, choice, f"{weights}-exported")
    distribution = strategy.build(choice, spec.distribution, cluster)
    preemption.watch()
    kind = _Training if choice.is_synchronous else _AsyncTraining
    return kind(spec, operation, cluster, choice, distribution).run(weights)


def evaluate_and_export(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, folder: str
) -> dict[str, float]:
    """Builds the model anew from `weights` and writes it to `folder` as a SavedModel.

    Returns:
      Its metrics on the evaluation split; none of a model that came exported.
    """
    if "exported" in facts:
        stock.copy(facts["exported"], folder)
        return {}
    configure(spec)
    code = UserModule(spec, facts["strategy"])
    transform_output = tft.TFTransformOutput(spec.transform_graph)
    evaluation = _read(spec, transform_output, spec.eval_files)
    context = _context(spec, transform_output, facts["rows"], facts["replicas"])
    model = code.build_model(context)
    features, _ = evaluation.sample(1)
    with code.blamed("the model fails on the first row of the evaluation split"):
        model(features, training=False)
    read_weights(model, weights)
    with code.blamed("evaluation fails"):
        found = model.evaluate(
            evaluation.ordered(spec.batch_size), verbose=0, return_dict=True
        )
    with code.blamed("the model cannot be exported"):
        export(model, context, spec.schema_file, folder)
    return {name: float(value) for name, value in found.items()}


def untrained(
    spec: WorkerSpec, strategy_name: str, replicas: int
) -> tuple[tf.keras.Model | None, dataset.Split]:
    """The model before its first step, outside of any strategy, and its examples.

    There is no model where the module has only a stock `run_fn(fn_args)`.
    """
    configure(spec)
    transform_output = tft.TFTransformOutput(spec.transform_graph)
    training = _read(spec, transform_output, spec.train_files)
    if not hasattr(user_code.load(spec.folder, spec.module), "build_model"):
        return None, training
    code = UserModule(spec, strategy_name)
    model = code.build_model(_context(spec, transform_output, training.rows, replicas))
    if code.run_fn is None:
        code.check(model, training, tf.distribute.get_strategy())
        _compile(model, dataclasses.replace(spec.settings, steps_per_execution=1))
    return model, training


def configure(spec: WorkerSpec) -> None:
    """Seeds, precision, determinism and logging of this process."""
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True)
    tf.get_logger().setLevel(logging.WARNING)
    tf.keras.utils.set_random_seed(spec.seed)
    if spec.settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    if spec.settings.mixed_precision:
        policy = f"mixed_{spec.settings.mixed_precision}"
        tf.keras.mixed_precision.set_global_policy(policy)


class _Training:
    """The parts of one training run in one process, and what they need in common."""

    def __init__(
        self,
        spec: WorkerSpec,
        operation: Operation,
        cluster: ClusterSpec,
        choice: strategy.Choice,
        distribution: tf.distribute.Strategy,
    ):
        self._spec = spec
        self._operation = operation
        self._cluster = cluster
        self._choice = choice
        self._strategy = distribution
        events.emit("progress", message="reading examples")
        self._code = UserModule(spec, choice.name)
        transform_output = tft.TFTransformOutput(spec.transform_graph)
        self._train = _read(spec, transform_output, spec.train_files)
        self._eval = _read(spec, transform_output, spec.eval_files)
        replicas = distribution.num_replicas_in_sync
        strategy.check_batch(spec.batch_size, replicas)
        context = _context(spec, transform_output, self._train.rows, replicas)
        self._context = dataclasses.replace(context, is_chief=cluster.is_chief)
        self._is_keras3 = False

    @property
    def _workers_that_agree(self) -> int:
        return self._choice.workers

    def run(self, weights: str) -> dict[str, Any]:
        """Trains, and writes the weights; the facts of it."""
        with self._strategy.scope():
            model = self._model()
            if self._cluster.is_chief:
                model.summary(print_fn=logging.info)
            position = Position(self._context.steps_per_epoch)
            progress = Progress(self._context, position)
            recorder = Recorder()
            with self._log_dir() as log_dir, self._code.blamed("training fails"):
                others = self._callbacks(model, position, log_dir)
                accompanying = [progress, *others, recorder]
                with memory.explained(self._context):
                    self._fit(model, position, accompanying)
            with self._weights_path(weights) as path:
                self._write(model, path)
        return self._facts(model, position, progress, recorder)

    def _model(self) -> tf.keras.Model:
        spec, settings = self._spec, self._spec.settings
        model = self._code.build_model(self._context)
        self._is_keras3 = keras3.is_model(model)
        learning_rate.scale(model, settings, spec.batch_size, self._context.replicas)
        if self._choice.name == "central_storage":
            learning_rate.let_replicas_set_it(model)
        scope = tf.distribute.get_strategy()
        self._code.check_scope(model, scope)
        self._settle_last_batch(model)
        layers.follow_optimizer(model)
        _compile(model, settings)
        self._code.check(model, self._train, scope)
        if spec.warm_start:
            warm_start(model, f"{spec.warm_start}/weights")
        return model

    def _settle_last_batch(self, model: tf.keras.Model) -> None:
        if self._context.drops_last_batch:
            return
        reason = last_batch.must_drop(
            model, self._context, self._spec.settings, self._choice.name
        )
        if reason:
            logging.info("the smaller last batch of an epoch is left out: %s", reason)
            self._context = dataclasses.replace(self._context, drops_last_batch=True)
        else:
            last_batch.weigh(model, self._context)

    def _callbacks(
        self, model: tf.keras.Model, position: Position, log_dir: str
    ) -> list[tf.keras.callbacks.Callback]:
        asked = self._spec.settings.callbacks
        found = callbacks.configured(asked, log_dir, keras3.package_of(model))
        if asked.get("terminate_on_nan", True):
            found.insert(0, TerminateOnNaN(position))
        return [*found, *self._code.callbacks(self._context)]

    def _fit(
        self,
        model: tf.keras.Model,
        position: Position,
        accompanying: list[tf.keras.callbacks.Callback],
    ) -> None:
        means = custom_loop.EpochMeans()
        if self._code.run_fn:
            accompanying = [means, *accompanying]
        keeper = self._keeper(position, accompanying)
        keeper.restore(model)
        hooks = self._hooks(model, position, accompanying, keeper)
        if self._code.run_fn:
            self._run_own_loop(model, position, hooks, means)
            return
        evaluation, steps = self._evaluation()
        loop.fit(
            model,
            self._context,
            position,
            feed=self._feed,
            evaluation=evaluation,
            evaluation_steps=steps,
            hooks=hooks,
        )

    def _run_own_loop(
        self,
        model: tf.keras.Model,
        position: Position,
        hooks: callbacks.Hooks,
        means: custom_loop.EpochMeans,
    ) -> None:
        """As `_fit`, by the user's own loop."""
        context, feed = self._context, self._feed
        custom_loop.run(
            self._code.run_fn,
            context,
            strategy=self._strategy,
            model=model,
            loop=custom_loop.Loop(model, context, position, feed, hooks, means),
            eval_rows=self._eval.rows,
            eval_dataset=functools.partial(self._eval.ordered, self._spec.batch_size),
        )

    def _hooks(
        self,
        model: tf.keras.Model,
        position: Position,
        accompanying: list[tf.keras.callbacks.Callback],
        keeper: Keeper,
    ) -> callbacks.Hooks:
        epochs = self._context.epochs
        return callbacks.Hooks([*accompanying, keeper], model, position, epochs)

    def _feed(self, step: int) -> Any:
        """What `fit` iterates over from `step` on."""
        feed = functools.partial(self._train.shuffled, **self._stream(step))
        return self._distributed(feed)

    def _stream(self, step: int) -> dict[str, Any]:
        """What the stream of batches from `step` on depends on."""
        return {
            "batch_size": self._spec.batch_size,
            "seed": self._spec.seed,
            "epochs": None,
            "first_step": step,
            "drop_last": self._context.drops_last_batch,
        }

    def _evaluation(self) -> tuple[Any, int | None]:
        """What `fit` evaluates on after each epoch, and in how many steps."""
        feed = functools.partial(self._eval.ordered, self._spec.batch_size)
        steps = self._eval.steps(self._spec.batch_size)
        return self._distributed(feed), steps

    def _distributed(self, feed: dataset.Feed) -> Any:
        if self._is_keras3:
            return feed()  # divided among the replicas by Keras 3 itself
        return dataset.distributed(self._strategy, feed)

    def _write(self, model: tf.keras.Model, path: str) -> None:
        write_weights(model, path)

    def _keeper(self, position: Position, followed: list[Any]) -> Keeper:
        return Keeper(
            Checkpoints(
                self._spec.checkpoint_dir,
                keep=self._operation.checkpoint_keep,
                is_chief=self._cluster.is_chief,
            ),
            Cadence.of(self._operation.checkpoint_every),
            Agreement(self._strategy, self._workers_that_agree),
            position,
            followed,
        )

    @contextlib.contextmanager
    def _log_dir(self) -> Iterator[str]:
        """Where the callbacks of this task log: only the chief's logs are kept."""
        if self._cluster.is_chief:
            yield self._spec.log_dir
            return
        with tempfile.TemporaryDirectory(prefix="logs-") as aside:
            yield aside

    @contextlib.contextmanager
    def _weights_path(self, path: str) -> Iterator[str]:
        """All workers write, because reading a variable may be a collective."""
        if self._cluster.is_chief:
            yield path
            return
        with tempfile.TemporaryDirectory(prefix="weights-") as aside:
            yield f"{aside}/weights"

    def _facts(
        self,
        model: tf.keras.Model,
        position: Position,
        progress: Progress,
        recorder: Recorder,
    ) -> dict[str, Any]:
        epochs, steps = divmod(position.step, position.steps_per_epoch)
        examples = epochs * self._context.rows_per_epoch
        examples += steps * self._spec.batch_size
        return {
            "strategy": self._choice.name,
            "reason": self._choice.reason,
            "replicas": self._context.replicas,
            "workers": self._choice.workers,
            "rows": self._train.rows,
            "global_batch": self._spec.batch_size,
            "seed": self._spec.seed,
            "parameters": model.count_params(),
            "steps": position.step,
            "examples": examples,
            "examples_per_second": round(progress.examples_per_second, 1),
            "history": recorder.history,
        }


class _AsyncTraining(_Training):
    """Training under parameter servers, in their coordinator."""

    _workers_that_agree = 1  # it decides alone

    def run(self, weights: str) -> dict[str, Any]:
        """As without parameter servers; there is a second model, in this process."""
        self._ordinary = self._model()
        return super().run(weights)

    def _model(self) -> tf.keras.Model:
        tf.keras.utils.set_random_seed(self._spec.seed)
        model = super()._model()
        if tf.distribute.has_strategy():
            parameter_server.follow(model, self._ordinary)
        return model

    def _hooks(
        self,
        model: tf.keras.Model,
        position: Position,
        accompanying: list[tf.keras.callbacks.Callback],
        keeper: Keeper,
    ) -> callbacks.Hooks:
        return parameter_server.AsyncHooks(
            [*accompanying, keeper],
            model,
            position,
            self._context.epochs,
            workers=self._choice.workers,
            ordinary=self._ordinary,
            evaluation=self._eval.ordered(self._spec.batch_size),
            pauses=keeper.is_due,
        )

    def _feed(self, step: int) -> Any:
        feed = functools.partial(self._train.remote, **self._stream(step))
        return parameter_server.distributed(feed, self._choice.workers)

    def _evaluation(self) -> tuple[Any, int | None]:
        return None, None  # the hooks do it

    def _write(self, model: tf.keras.Model, path: str) -> None:
        self._ordinary.set_weights(model.get_weights())
        write_weights(self._ordinary, path)


def _compile(model: tf.keras.Model, settings: Settings) -> None:
    """What the settings say of how `fit` runs a step."""
    if keras3.is_model(model):
        keras3.compile_as(model, settings)
        return
    if settings.jit_compile:
        model.jit_compile = True
    if settings.steps_per_execution > 1:
        # What `compile(steps_per_execution=…)` calls; the user compiles, not we.
        model._configure_steps_per_execution(settings.steps_per_execution)


def _read(
    spec: WorkerSpec, transform_output: tft.TFTransformOutput, files: tuple[str, ...]
) -> dataset.Split:
    feature_spec = transform_output.transformed_feature_spec()
    if spec.label not in feature_spec:
        raise UserError(
            f"The label `{spec.label}` is not among the outputs of `preprocessing_fn`: "
            f"{', '.join(sorted(feature_spec))}. Return it there, or correct `label`."
        )
    if not isinstance(feature_spec[spec.label], tf.io.FixedLenFeature):
        raise UserError(
            f"The label `{spec.label}` is of varying length after Transform: a row may "
            "lack it. Require it in the schema (presence and shape), or make it dense "
            "in `preprocessing_fn`."
        )
    limit = spec.settings.cache_limit
    return dataset.read(files, feature_spec, spec.label, cache_limit=limit)


def _context(
    spec: WorkerSpec, transform_output: tft.TFTransformOutput, rows: int, replicas: int
) -> TrainingContext:
    feature_spec = transform_output.transformed_feature_spec()
    schema = schema_pb2.Schema()
    with tf.io.gfile.GFile(spec.schema_file) as file:
        text_format.Parse(file.read(), schema)
    return TrainingContext(
        hyperparameters=dict(spec.hyperparameters),
        label=spec.label,
        label_spec=feature_spec.pop(spec.label),
        feature_spec=feature_spec,
        schema=schema,
        transform_output=transform_output,
        rows=rows,
        epochs=spec.epochs,
        replicas=replicas,
        global_batch_size=spec.batch_size,
        seed=spec.seed,
        drops_last_batch=spec.settings.last_batch == "drop",
    )
