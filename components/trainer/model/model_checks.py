"""Checks that the user's model fits its data and its losses; errors have a remedy."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.compat import compiled, keras3, tracing
from strategos.components.trainer.model import dropout, effects
from strategos.components.trainer.model.labels.head_checks import HeadChecker
from strategos.components.trainer.model.replicas import local_values
from strategos.components.user_code.user_errors import explain
from strategos.components.wording import listed


class ModelChecker:
    """Checks the result of `build_model` against the data.

    Args:
      where: Name of the function in errors: `FILE: build_model`.
      folder: Folder of the user's code, to find the user's line in a traceback.
      label: The label.
      strategy: Name of the training's strategy.
      unseen: Returns a label of the evaluation split that training lacks, with its
        place; "" if none is known.
      own_loop: Whether the user's `run_fn` trains, which may train other variables.
    """

    def __init__(
        self,
        where: str,
        folder: str,
        label: Label,
        strategy: str = "one_device",
        unseen: Callable[[], str] = str,
        *,
        own_loop: bool = False,
    ):
        labels = label.by_output
        self._heads = {
            name: HeadChecker(where, own, unseen, name) for name, own in labels.items()
        }
        self._where = where
        self._folder = folder
        self._label = label
        self._strategy = strategy
        self._own_loop = own_loop
        self._outputs: Any = None  # of the model outside of any strategy

    def check_kind(self, model: Any) -> None:
        """Rejects a result of `build_model` that is not a compiled model.

        Raises:
          UserError: It is another object, e.g. None, or a model that is not compiled
            or overrides `fit`, or a Keras 3 model under a strategy that does not
            support it.
        """
        if model is None:
            raise self._refusal("returned None. End it with `return model`.")
        if keras3.package_of(model) is None:
            kind = f"{type(model).__module__}.{type(model).__qualname__}"
            raise self._refusal(f"returned a {kind}, expected a `tf.keras.Model`.")
        self._check_overridden(model)
        if keras3.is_model(model) and self._strategy not in keras3.STRATEGIES:
            raise self._refusal(
                "returned a Keras 3 model (made with the package `keras`), which "
                f"does not train under {self._strategy}, only under "
                f"{listed(keras3.STRATEGIES)}. Build it with tf-keras instead: "
                "`import tf_keras as keras`."
            )
        if keras3.is_model(model) and (layer := keras3.layer_of_tf_keras(model)):
            raise self.mixed(layer)
        if getattr(model, "optimizer", None) is None:
            raise self._refusal(
                "returned a model that is not compiled. Call "
                "`model.compile(optimizer, loss, metrics=[…])` before returning it."
            )

    def _check_overridden(self, model: Any) -> None:
        """Rejects a model with a method of its own that is not called, e.g. `fit`.

        A `fit` or `evaluate` of Keras 3 is a warning. In its packages, such as
        KerasHub, one around `train_step` prepares rows that `preprocessing_fn` has
        prepared already.
        """
        of_keras3, names = keras3.is_model(model), ["fit", "evaluate"]
        if of_keras3 or self._strategy == "parameter_server":
            names = ["make_train_function", "make_test_function", *names]
        own = [x for x in names if keras3.is_overridden(model, x)]
        if not own or self._own_loop:
            return
        makes = own[0].startswith("make_")
        text = (
            f"returned a model that overrides `{own[0]}`, which is not called"
            f"{' under parameter_server' * (makes and not of_keras3)}. "
            "Training calls `train_step` and `test_step`: override these, or define "
            "`run_fn(context)`."
        )
        if makes or not of_keras3:
            raise self._refusal(text)
        events.emit("warning", message=f"{self._where}: {text}")

    def mixed(self, layer: Any) -> UserError:
        """The error of a Keras 3 model with a layer of tf-keras."""
        kind = type(layer)
        ours = ""
        if dropout.is_ours(layer):
            ours = "`context.dropout(…, keras=keras)` makes one of Keras 3. "
        return self._refusal(
            f"uses a layer of tf-keras, `{layer.name}` ({kind.__module__}."
            f"{kind.__qualname__}), in a Keras 3 model, which would not train its "
            f"weights. {ours}Make all layers with one package: those of "
            "`keras.layers`, or a whole model of tf-keras (`import tf_keras as keras`)."
        )

    def without_package(self) -> UserError:
        """The error of a Keras 3 model on inputs of tf-keras."""
        return self._refusal(
            "passes a tensor of tf-keras to Keras 3, such as an input that "
            "`context.inputs()` makes. Pass the package, too: `context.inputs(keras)`, "
            "`context.embedding(…, keras=keras)`."
        )

    def check_inputs(self, model: tf.keras.Model, features: dict[str, Any]) -> None:
        """Rejects inputs without a feature of the same name and a compatible shape.

        Dtypes may differ, e.g. int64 and float32, but not text and numbers.

        Raises:
          UserError: An input does not fit, or a Sequential model has no input.
        """
        inputs = keras3.inputs_of(model)
        if isinstance(model, keras3.package_of(model).Sequential) and not inputs:
            raise self._refusal(
                "returned a Sequential model without an input. Begin it with "
                "`keras.Input(shape, name=FEATURE)`; features: "
                f"{', '.join(sorted(features))}."
            )
        unknown = sorted(set(inputs) - set(features))
        if unknown:
            raise self._refusal(
                f"has inputs that the data does not have: {', '.join(unknown)}. "
                f"Transformed features: {', '.join(sorted(features))}. "
                "Give `keras.Input` the `name` of a feature."
            )
        for name, tensor in inputs.items():
            self._check_input(name, tensor, features[name])

    def check_scope(
        self, model: tf.keras.Model, strategy: tf.distribute.Strategy
    ) -> None:
        """Rejects a model or optimizer that was made outside of `strategy.scope()`.

        Raises:
          UserError: A variable was made elsewhere, e.g. when the module was imported.
        """
        if not tf.distribute.has_strategy():
            return
        made = strategy.extended.variable_created_in_scope
        parts = {
            "model": compiled.variables(model),
            "optimizer": [model.optimizer.iterations],
        }
        for part, variables in parts.items():
            outside = [x.name for x in variables if not made(keras3.of_tensorflow(x))]
            if outside:
                raise self._refusal(
                    f"returned a model whose {part} was made elsewhere "
                    f"({outside[0]}): each replica needs its own copy. Make the {part} "
                    "inside `build_model`, not when the module is imported."
                )

    def outputs(self, model: tf.keras.Model, features: Any) -> Any:
        """Computes the model's outputs on a few rows, without changing its state.

        Creates all variables of its layers.

        Args:
          model: The compiled model.
          features: A sample batch of features.

        Returns:
          Tensors `[rows, …]`, flat or nested.

        Raises:
          UserError: The model fails, or uses a variable that is not one of its weights.
        """
        features = keras3.taken(model, features)
        used: list[tf.Variable] = []

        def call() -> Any:
            with tf.GradientTape() as tape:
                outputs = model(features, training=False)
            used[:] = tape.watched_variables()
            return outputs

        with self._blamed("the model fails on the first rows"):
            if model.run_eagerly:
                outputs = call()
            else:
                if tf.distribute.has_strategy():
                    tracing.shapes(call)  # creates variables where no replica does
                    if self._strategy == "parameter_server":
                        return self._outputs  # only a worker's call finds its tables
                outputs = tracing.values(lambda: local_values.of_first(call))
        self._check_used(model, used)
        self._outputs = outputs
        return outputs

    def _check_used(self, model: tf.keras.Model, used: Sequence[tf.Variable]) -> None:
        """Rejects trainable variables that no step of `fit` would train.

        Both packages of Keras train the weights of layers alone: neither a variable
        that a function of the user's creates, nor a layer of the other package. The
        variables of an attribute may be meant to stay, e.g. a SavedModel: a warning.
        """
        if self._own_loop or keras3.is_overridden(model, "train_step"):
            return
        variables = map(keras3.of_tensorflow, compiled.variables(model))
        own = {handle for x in variables for handle in _handles(x)}
        strange = [x for x in used if own.isdisjoint(_handles(x))]
        if not strange:
            return
        held = [x for x in keras3.tracked(model) if isinstance(x, tf.Variable)]
        known = {handle for x in held for handle in _handles(x)}
        loose = [x for x in strange if known.isdisjoint(_handles(x))]
        name = (loose or strange)[0].name
        text = (
            f"computes with the variable `{name}`, which is not a "
            "weight of the model, so it would never train. Create it by a layer's "
            "`add_weight`, and make all layers with the model's package of Keras; or, "
            "if it is to stay as it is, with `trainable=False`."
        )
        if loose:
            raise self._refusal(text)
        events.emit("warning", message=f"{self._where}: {text}")

    def check_output(
        self,
        model: tf.keras.Model,
        features: Any,
        output: Any,
        labels: Any,
        *,
        complete: bool,
        evaluated: Any = None,
        is_weighted: bool = False,
    ) -> None:
        """Rejects an output that the model's loss cannot take.

        Creates all variables of loss and metrics, so that `fit` creates none of them
        while it traces its step.

        Args:
          model: The compiled model.
          features: A sample batch of features.
          output: The result of `outputs` for these features.
          labels: All available labels, `[rows, k]`, of several heads by output; the
            first ones belong to the sample.
          complete: Whether `labels` are the labels of all training examples.
          evaluated: The labels of the evaluation split; None if unknown.
          is_weighted: Whether training rows have weights.

        Raises:
          UserError: The loss, a metric or the labels do not fit, or a setting of the
            model would have no effect.
        """
        heads = self._heads
        for name, head in heads.items():
            head.check_kind(labels[name] if name else labels)
        effects.check_compiled(model, self._where, is_weighted=is_weighted)
        for place, name, loss in self._judged(model, output):
            heads[name].check(
                loss,
                _last_activation(model, place),
                tf.nest.flatten(output)[place],
                labels[name] if name else labels,
                complete=complete,
                evaluated=evaluated[name] if name and evaluated else evaluated,
            )
        if not keras3.is_overridden(model, "train_step"):
            rows = tf.nest.flatten(output)[0].shape[0]
            first = tf.nest.map_structure(lambda each: each[:rows], labels)
            weights = [tf.ones(rows)] if is_weighted else []
            batch = keras3.taken(model, features), first, *weights
            self._measure(model, batch)

    def _judged(
        self, model: tf.keras.Model, output: Any
    ) -> Iterator[tuple[int, str, Any]]:
        """The place, the head ("" for a label without heads) and the loss of outputs.

        Of the outputs that are compared with a label.
        """
        if self._label.outputs:
            yield from effects.head_outputs(model, output, self._where, self._label)
            return
        judged = effects.judged_outputs(model, output, self._where, self._label.name)
        for place in judged:
            yield place, "", model.loss

    def _measure(self, model: tf.keras.Model, batch: tuple[Any, ...]) -> None:
        """Traces loss and metrics; rejects a metric that returns several values."""

        features, labels, *weights = batch
        weight = weights[0] if weights else None

        def measure() -> Any:
            # Called again here: Keras keeps the losses that layers add per thread.
            output = model(features, training=False)
            model.compute_loss(features, labels, output, weight)
            return model.compute_metrics(features, labels, output, weight)

        eager = model.run_eagerly
        with self._blamed("the loss or a metric fails on the first rows"):
            measured = functools.partial(local_values.of_first, measure)
            values = measured() if eager else tracing.shapes(measured)
        if eager:
            model.reset_metrics()
        for name, value in values.items():
            count = tf.convert_to_tensor(value).shape.num_elements()
            if count not in (1, None):
                raise self._refusal(
                    f"the metric `{name}` gives {count} values, expected one "
                    "number. Give it an argument such as `average='macro'` if it has "
                    "one, or take another metric."
                )

    @contextlib.contextmanager
    def _blamed(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = explain(error, self._folder)
            raise UserError(f"{self._where}: {what}. {text}") from error

    def _check_input(self, name: str, tensor: Any, value: Any) -> None:
        shape, dtype = tf.TensorShape(tensor.shape), tf.as_dtype(tensor.dtype)
        if not shape.is_compatible_with(value.shape):
            raise self._refusal(
                f"input `{name}` has shape {_shown(shape)}, "
                f"but the feature has shape {_shown(value.shape)}."
            )
        if (dtype == tf.string) != (value.dtype == tf.string):
            raise self._refusal(
                f"input `{name}` is {dtype.name}, but the feature is "
                f"{value.dtype.name}. Give `keras.Input` that dtype, or make "
                "numbers of it in `preprocessing_fn`."
            )

    def _refusal(self, what: str) -> UserError:
        return UserError(f"{self._where}: {what}")


def _last_activation(model: tf.keras.Model, place: int) -> str | None:
    """Name of the activation that computes an output; None if unknown.

    Args:
      model: The model.
      place: Index of the output among all outputs, flattened.
    """
    if not getattr(model, "outputs", None) or not getattr(model, "layers", None):
        return None
    kinds = keras3.package_of(model).layers
    layer = _made_by(model, model.outputs[place])
    while isinstance(layer, kinds.Activation) and _activation(layer) == "linear":
        layer = _made_by(model, layer.input)  # a cast, for mixed precision
    return "softmax" if isinstance(layer, kinds.Softmax) else _activation(layer)


def _made_by(model: tf.keras.Model, tensor: Any) -> Any:
    """The layer that computes a tensor of a functional model, or None."""
    return next((layer for layer in model.layers if layer.output is tensor), None)


def _activation(layer: Any) -> str | None:
    return getattr(getattr(layer, "activation", None), "__name__", None)


def _shown(shape: tf.TensorShape) -> str:
    sizes = ["batch", *shape.as_list()[1:]]
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"


def _handles(variable: tf.Variable) -> list[int]:
    """The resources of a variable, on each replica of this process."""
    parts = tf.distribute.get_strategy().experimental_local_results(variable)
    return [id(part.handle) for part in parts]
