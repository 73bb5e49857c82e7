"""One training run, from a `WorkerSpec`: train in one process, export in another."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components import events, user_code
from strategos.components.errors import UserError
from strategos.components.trainer import dataset, loop, strategy
from strategos.components.trainer.autograph import convert_own_steps
from strategos.components.trainer.checkpoints import read_weights, write_weights
from strategos.components.trainer.context import TrainingContext
from strategos.components.trainer.export import export
from strategos.components.trainer.model_checks import ModelChecker
from strategos.components.trainer.spec import WorkerSpec
from strategos.components.user_errors import explain, location

_SAMPLE_ROWS = 64
_OF_MODEL_OR_DATA = (ValueError, TypeError, tf.errors.OpError)


def train(spec: WorkerSpec, weights: str) -> dict[str, Any]:
    """Trains as `spec` says and writes the weights to files that begin with `weights`.

    Returns:
      The facts that the Model artifact carries.

    Raises:
      UserError: The user's code, settings or data cannot be trained with.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    choice = strategy.choose(spec.distribution, gpus)
    events.emit("progress", message="reading examples")
    code = _UserCode(spec)
    transform_output = tft.TFTransformOutput(spec.transform_graph)
    training = _read(spec, transform_output, spec.train_files)
    evaluation = _read(spec, transform_output, spec.eval_files)
    distribution = choice.build()
    replicas = distribution.num_replicas_in_sync
    context = _context(spec, transform_output, training.rows, replicas)
    tf.keras.utils.set_random_seed(spec.seed)
    with distribution.scope():
        model = code.build_model(context)
        code.check(model, training)
        callbacks = loop.configured_callbacks(spec.callbacks, spec.log_dir)
        callbacks += code.callbacks(context)
        with code.blamed("training fails"):
            trained = loop.fit(
                model,
                context,
                training,
                evaluation,
                callbacks=callbacks,
            )
    write_weights(model, weights)
    return {
        "strategy": choice.name,
        "reason": choice.reason,
        "replicas": replicas,
        "workers": 1,
        "rows": training.rows,
        "global_batch": spec.batch_size,
        "restarts": 0,
        "seed": spec.seed,
        "parameters": model.count_params(),
        **dataclasses.asdict(trained),
    }


def evaluate_and_export(
    spec: WorkerSpec, facts: dict[str, Any], weights: str, folder: str
) -> dict[str, float]:
    """Builds the model anew from `weights` and writes it to `folder` as a SavedModel.

    Returns:
      Its metrics on the evaluation split.
    """
    code = _UserCode(spec)
    transform_output = tft.TFTransformOutput(spec.transform_graph)
    evaluation = _read(spec, transform_output, spec.eval_files)
    context = _context(spec, transform_output, facts["rows"], facts["replicas"])
    tf.keras.utils.set_random_seed(spec.seed)
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


class _UserCode:
    """The user's module: calls into it, with its file and line in every error."""

    def __init__(self, spec: WorkerSpec):
        self._spec = spec
        self._build_model = user_code.function(spec.folder, spec.module, "build_model")
        self._module = user_code.load(spec.folder, spec.module)
        where = f"{self._module.__file__}: `build_model`"
        self._checker = ModelChecker(where, spec.folder, spec.label)

    def build_model(self, context: TrainingContext) -> tf.keras.Model:
        """The user's compiled model."""
        with self.blamed("`build_model` fails"):
            model = self._build_model(context)
        self._checker.check_kind(model)
        convert_own_steps(model)
        return model

    def callbacks(self, context: TrainingContext) -> list[Any]:
        """The user's callbacks, if the module has a function `callbacks`."""
        function = getattr(self._module, "callbacks", None)
        with self.blamed("`callbacks` fails"):
            return loop.user_callbacks(function, context, str(self._module.__file__))

    def check(self, model: tf.keras.Model, training: dataset.Split) -> None:
        """Refuses a model that does not fit its data or its loss."""
        features, labels = training.sample(_SAMPLE_ROWS)
        if training.columns is not None:
            labels = training.columns[self._spec.label]
        self._checker.check_inputs(model, features)
        self._checker.check_output(model, features, labels)

    @contextlib.contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Turns an error into one that names the user's file and line."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            where = location(error, self._spec.folder)
            if not where and not isinstance(error, _OF_MODEL_OR_DATA):
                raise  # an error of ours
            text = explain(error, self._spec.folder)
            if not where:
                text = f"{self._module.__file__}: {text}"
            raise UserError(f"{what}: {text}") from error


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
    return dataset.read(files, feature_spec, spec.label)


def _context(
    spec: WorkerSpec, transform_output: tft.TFTransformOutput, rows: int, replicas: int
) -> TrainingContext:
    steps_per_epoch = -(-rows // spec.batch_size)
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
        steps_per_epoch=steps_per_epoch,
        replicas=replicas,
        global_batch_size=spec.batch_size,
        seed=spec.seed,
    )
