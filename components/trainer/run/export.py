"""Exports trained weights as a SavedModel that takes raw examples.

The SavedModel holds Transform's graph and the model, so that it needs nothing else:

- `serving_default`: `examples` string[batch], serialized raw `tf.Example`, to
  `predictions` float32[batch, k] (one key per output of a model with several). Of a
  model that reconstructs features also `reconstruction_error` float32[batch, 1], the
  mean squared difference of `predictions` from the features.
- `predict`: raw features as dense tensors `[batch, *shape]` to the same. A feature that
  may be missing is `[batch, n]`, where "", NaN or the smallest integer is no value; in
  an example for `serving_default`, each of the three is an ordinary value.
  Absent if a raw feature is nested: sparse or ragged in more than one dimension.
- `transform_features`: `examples` to the transformed features, including the label.

The first two take only the raw features that the model's inputs are computed from.
In addition to the graph, `assets.extra/` holds `schema.pbtxt` and `serving.json` (these
features, the label, the names of its classes, columns that are parsed but unused,
whether the loss takes logits, label and classes of each of several `heads`, how many
values of which features the model `reconstructs`, and the spellings of a missing
number), so that a pushed model describes itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.model import effects
from strategos.components.trainer.model.comparison import answers
from strategos.components.trainer.model.context import TrainingContext
from strategos.components.trainer.model.known_losses import known_loss
from strategos.components.trainer.model.labels import reconstruction
from strategos.components.trainer.run import class_names, saved_model
from strategos.components.transformed.graph import TransformGraph
from strategos.components.wording import listed, quoted

MISSING_INT = tf.int64.min
"""Value that means "missing" in an integer feature of the `predict` signature."""


def export(
    model: tf.keras.Model,
    context: TrainingContext,
    schema_file: str,
    folder: str,
    null_values: Sequence[str] = (),
    graph: TransformGraph | None = None,
    reading: str = "{}",
) -> None:
    """Writes a model as a SavedModel.

    Args:
      model: The trained model.
      context: The facts of the training.
      schema_file: Schema of the raw examples.
      folder: Folder that gets the SavedModel.
      null_values: Spellings of a missing number in the raw data.
      graph: Transform's graph; by default the one of `context`, which is loaded.
      reading: How the data files were written, see `WorkerSpec`.

    Raises:
      UserError: An input of the model is computed from the label's raw column, or from
        all columns that the label is made from.
    """
    graph = graph or TransformGraph(context.transform_output)
    servable = _Servable(model, graph, context)
    signatures = servable.signatures()
    archive = tf_keras.export.ExportArchive()  # of Keras 3 models too
    archive.track(model)
    archive.track(graph.loaded)
    for name, function in signatures.items():
        archive.add_endpoint(name, function)
    archive.write_out(folder)
    saved_model.rename_inputs(folder, exported.PREDICT, servable.columns)
    described = _heads(model, graph, context)
    named = [] if described else class_names.class_names(graph, context)
    needed = graph.raw_columns_of(servable.raw_spec)
    describe(
        folder,
        schema_file,
        context.label,
        needed,
        classes=named,
        from_logits=None if described else _from_logits(getattr(model, "loss", None)),
        heads=described,
        reconstructs=reconstruction.widths(context),
        null_values=null_values,
        reading=reading,
    )


def describe(
    folder: str,
    schema_file: str,
    label: str,
    features: Iterable[str],
    *,
    classes: Sequence[str] = (),
    unused: Iterable[str] = (),
    from_logits: bool | None = None,
    heads: Mapping[str, Any] = MappingProxyType({}),
    reconstructs: Mapping[str, int] = MappingProxyType({}),
    null_values: Sequence[str] = (),
    reading: str = "{}",
) -> None:
    """Writes `assets.extra`, which describes a SavedModel's inputs; see above.

    Args:
      folder: The SavedModel.
      schema_file: Schema of the raw examples.
      label: The label, as `Label.text`.
      features: Raw columns that the model reads.
      classes: Names of the predicted classes, if known.
      unused: Raw columns that the model parses, but computes no prediction from: a
        client may send any value.
      from_logits: Whether the model answers with logits; None if that is not known.
      heads: The label, `classes` and `from_logits` of each output; {} for one head.
      reconstructs: Values of each feature that the model reconstructs; {} for a model
        of a label.
      null_values: Spellings of a missing number in the raw data.
      reading: How the data files were written, see `WorkerSpec`.
    """
    schema = f"{folder}/{exported.SCHEMA}"
    tf.io.gfile.makedirs(os.path.dirname(schema))
    tf.io.gfile.copy(schema_file, schema, overwrite=True)
    with tf.io.gfile.GFile(f"{folder}/{exported.DESCRIPTION}", "w") as file:
        described: dict[str, Any] = {"label": label, "features": sorted(features)}
        described |= {"classes": list(classes), "unused": sorted(unused)}
        described["from_logits"] = from_logits
        described |= {"heads": dict(heads)} if heads else {}
        described |= {"reconstructs": dict(reconstructs)} if reconstructs else {}
        described["null_values"] = list(null_values)
        described["reading"] = json.loads(reading)
        file.write(json.dumps(described))


def _heads(
    model: tf.keras.Model, graph: TransformGraph, context: TrainingContext
) -> dict[str, Any]:
    """The entry of each head in `serving.json`; {} for a model with one head."""
    if not context.target.outputs:
        return {}
    losses = effects.losses(model, context.target.outputs)
    return {
        head: {
            "label": own.text,
            "classes": class_names.class_names(graph, context, head),
            "from_logits": _from_logits(losses.get(head)),
        }
        for head, own in context.target.heads.items()
    }


def _from_logits(compiled: Any) -> bool | None:
    """Whether a compiled loss takes logits; None without a cross entropy of Keras."""
    loss = known_loss(compiled)
    if loss is None or not loss.name.endswith("crossentropy"):
        return None
    return loss.from_logits


class _Servable:
    """The functions behind the signatures."""

    def __init__(
        self, model: tf.keras.Model, graph: TransformGraph, context: TrainingContext
    ):
        self._model = model
        self._graph = graph
        names = list(keras3.inputs_of(model)) or list(context.feature_spec)
        self._features = [name for name in names if name in context.feature_spec]
        self._target = context.target
        compared = self._target.columns if self._target.reconstructs else ()
        self._made = [*dict.fromkeys([*self._features, *compared])]
        needed = graph.raw_features_of(self._made)
        self.raw_spec = {name: graph.raw_spec[name] for name in sorted(needed)}
        for label in self._target.withheld:
            if leaking := _leaking(label, graph, self._features):
                raise UserError(_leak(label, graph, leaking))
        self.columns = saved_model.argument_names(self.raw_spec)

    def signatures(self) -> dict[str, Any]:
        """Functions by signature name, traced."""
        examples = tf.TensorSpec([None], tf.string, name="examples")
        functions = {
            exported.SERVE: tf.function(self._answer, input_signature=[examples]),
            exported.TRANSFORM: tf.function(
                self._transform_all, input_signature=[examples]
            ),
        }
        if not any(map(_is_nested, self.raw_spec.values())):
            raw = {
                name: _dense_spec(name, self.raw_spec[column])
                for name, column in self.columns.items()
            }
            functions[exported.PREDICT] = tf.function(
                self._answer_raw, input_signature=[raw]
            )
        return {name: _traced_once(function) for name, function in functions.items()}

    def _answer(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._predictions(self._parsed_features(examples))

    def _answer_raw(self, raw: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return self._predictions(self._given_features(raw))

    def _parsed_features(self, examples: tf.Tensor) -> dict[str, Any]:
        raw = tf.io.parse_example(examples, self.raw_spec)
        return self._graph.transform(raw, self._made)

    def _given_features(self, raw: Mapping[str, tf.Tensor]) -> dict[str, Any]:
        values = {
            column: _as_parsed(raw[name], self.raw_spec[column])
            for name, column in self.columns.items()
        }
        return self._graph.transform(values, self._made)

    def _transform_all(self, examples: tf.Tensor) -> dict[str, Any]:
        needed = self._graph.raw_features_of(self._graph.outputs)
        spec = {name: self._graph.raw_spec[name] for name in needed}
        for name in set(spec) - set(
            self.raw_spec
        ):  # the label's columns may be missing
            spec[name] = _with_default(spec[name])
        raw = tf.io.parse_example(examples, spec)
        return self._graph.transform(raw, self._graph.outputs)

    def _predictions(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        inputs = {name: features[name] for name in self._features}
        output = self._model(inputs, training=False)
        named = answers.named(output, getattr(self._model, "output_names", None))
        return reconstruction.with_error(named, features, self._target)


def _traced_once(function: Any) -> Any:
    """A function that calls the trace of `function`, which has an input signature.

    Saving traces each endpoint a second time; here that trace is a single call.
    """
    trace = function.get_concrete_function()
    calling = tf.function(
        lambda given: trace(given),
        input_signature=function.input_signature,
        autograph=False,
    )
    calling.get_concrete_function()
    return calling


def _is_nested(spec: Any) -> bool:
    return isinstance(spec, tf.io.SparseFeature) or bool(
        getattr(spec, "partitions", ())
    )


def _dense_spec(name: str, spec: Any) -> tf.TensorSpec:
    if isinstance(spec, tf.io.FixedLenFeature):
        return tf.TensorSpec([None, *spec.shape], spec.dtype, name=name)
    return tf.TensorSpec([None, None], spec.dtype, name=name)


def _as_parsed(value: tf.Tensor, spec: Any) -> Any:
    """A dense raw feature in the form that `tf.io.parse_example` returns."""
    if isinstance(spec, tf.io.FixedLenFeature):
        return value
    if spec.dtype.is_floating:
        present = tf.logical_not(tf.math.is_nan(value))
    else:
        missing = "" if spec.dtype == tf.string else MISSING_INT
        present = tf.not_equal(value, tf.constant(missing, spec.dtype))
    ragged = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(value, present),
        tf.reduce_sum(tf.cast(present, tf.int64), axis=1),
        validate=False,  # the lengths fit by construction
    )
    return ragged if isinstance(spec, tf.io.RaggedFeature) else ragged.to_sparse()


def _with_default(spec: Any) -> Any:
    if not isinstance(spec, tf.io.FixedLenFeature):
        return spec
    nothing = "" if spec.dtype == tf.string else spec.dtype.as_numpy_dtype()
    default = np.full(spec.shape, nothing)
    return tf.io.FixedLenFeature(spec.shape, spec.dtype, default)


def beside_label(
    label: Label, graph: TransformGraph, features: Iterable[str]
) -> dict[str, set[str]]:
    """Features of columns from which a label is made, too, that do not determine it.

    Args:
      label: The label among the transformed features.
      graph: Transform's graph.
      features: The features that the model takes.

    Returns:
      The columns that both are computed from, by feature.
    """
    of_label = graph.raw_features_of(label.columns)
    shared = {name: of_label & graph.raw_features_of([name]) for name in features}
    return {name: columns for name, columns in shared.items() if columns}


def _leaking(label: str, graph: TransformGraph, features: list[str]) -> list[str]:
    """The features of a label's own column, or of all columns that it is made from."""
    of_label = graph.raw_features_of([label])
    sources = {name: graph.raw_features_of([name]) for name in features}
    return [
        name
        for name, columns in sources.items()
        if label in columns or (of_label and of_label <= columns)
    ]


def _leak(label: str, graph: TransformGraph, leaking: list[str]) -> str:
    made = ""
    if label not in graph.raw_spec:
        columns = quoted(sorted(graph.raw_features_of([label])))
        made = f", which is made of {listed(columns)}"
    return (
        f"`preprocessing_fn` computes {', '.join(leaking)} from the label "
        f"`{label}`{made}, and it is unknown when the model predicts. Compute it from "
        "other columns."
    )
