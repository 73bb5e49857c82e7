"""Rejects settings of a model or callback that Keras accepts but silently ignores.

Here an example has one label, and `fit` traces its step once, as the model was
compiled. Other settings, e.g. weighted metrics of rows without weights, would train
without an error, but with unexpected results.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.compat import compiled, keras3
from strategos.components.trainer.compat.callbacks import TensorCallback
from strategos.components.wording import did_you_mean, listed, quoted

_WATCHED = ("trainable", "rate")
"""Attributes of a layer that a traced step treats as constants; `rate` is dropout's."""


def check_compiled(
    model: tf.keras.Model, where: str, *, is_weighted: bool = False
) -> None:
    """Rejects settings of a compiled model that would have no effect.

    Args:
      model: A compiled model.
      where: Name of the function that made it, for the message: `FILE: build_model`.
      is_weighted: Whether training rows have weights.

    Raises:
      UserError: The model has weighted metrics, but examples have no weights; or a
        layer's `trainable` has changed since `compile`, which `fit` would ignore.
    """
    weighted = tf.nest.flatten(compiled.argument(model, "weighted_metrics") or [])
    if weighted and not is_weighted and not keras3.is_overridden(model, "train_step"):
        raise UserError(
            f"{where}: has weighted_metrics ({', '.join(map(_name, weighted))}), but "
            "examples have no weights here: they would equal the unweighted ones. Name "
            "the feature that weights the rows, `weight: COLUMN`, or move them to "
            "`metrics`."
        )
    changed = compiled.changed_trainable(model)
    if changed:
        raise UserError(
            f"{where}: `trainable` of {_listed(changed)} was changed after `compile`: "
            "Keras trains as it was then. Set it before `compile`; for phases that "
            "train other layers, see `trainer.phases`."
        )


def judged_outputs(
    model: tf.keras.Model, output: Any, where: str, label: str
) -> dict[int, tf.Tensor]:
    """The outputs that the loss is computed on, by their index among all outputs.

    Warns if several outputs are trained on, or measured against, the same label.

    Args:
      model: A compiled model.
      output: The model's output: tensors `[rows, …]`, flat or nested.
      where: Name of the function that made the model, for messages.
      label: Name of the label.

    Raises:
      UserError: Several outputs have a loss of their own: all would learn one label.
    """
    tensors = tf.nest.flatten(output)
    if len(tensors) == 1:
        return dict(enumerate(tensors))
    names, loss = _output_names(model, output), model.loss
    losses = _by_output(loss, names)
    own = [name for name, value in losses.items() if value is not None]
    several = isinstance(loss, (Mapping, list, tuple)) and len(own) > 1
    if several and not keras3.is_overridden(model, "train_step"):
        raise UserError(
            f"{where}: the outputs {_listed(own)} have a loss each, but an example has "
            f"one label, `{label}`: all of them would learn it. Give one output a loss "
            f'(`loss={{"{own[0]}": …}}`), or override `train_step`. If each is meant '
            f"to learn `{label}`, give `compile` one loss for all."
        )
    measured = compiled.argument(model, "metrics")
    measured = list(measured) if isinstance(measured, Mapping) else []
    beside = [name for name in measured if name in names and name not in own]
    if len(own) > 1 or beside:
        events.emit(
            "warning",
            message=f"{where}: the outputs {_listed([*own, *beside])} are all compared "
            f"with the one label `{label}`",
        )
    return {i: x for i, x in enumerate(tensors) if names[i] in own}


def head_outputs(
    model: tf.keras.Model, output: Any, where: str, label: Label
) -> Iterator[tuple[int, str, Any]]:
    """The place among all outputs, the name and the loss of each head of the label.

    Args:
      model: A compiled model.
      output: The model's output: tensors `[rows, …]`, flat or nested.
      where: Name of the function that made the model, for messages.
      label: The label, of several heads.

    Raises:
      UserError: The model lacks an output that the label names, an output that has a
        loss is not named, or a head has no loss.
    """
    if keras3.is_model(model) and not isinstance(output, Mapping):
        pairs = ", ".join(f'"{name}": …' for name in label.outputs)
        raise UserError(
            f"{where}: `label` names outputs, and Keras 3 takes labels by name only if "
            "the model returns its outputs by name",
            remedy=f"Return a dict: `keras.Model(inputs, {{{pairs}}})`.",
        )
    names = _output_names(model, output)
    compiled_losses = _by_output(model.loss, names)
    own_step = keras3.is_overridden(model, "train_step")
    for name in label.outputs:
        if name not in names:
            raise UserError(
                f"{where}: the model has no output `{name}`",
                key="label",
                expected=f"heads of the outputs {_listed(names)}",
                remedy=did_you_mean(
                    name,
                    names,
                    "Name the output in the model: by the key of a dict of outputs, or "
                    "by the name of its last layer.",
                ),
            )
        if compiled_losses[name] is None and not own_step:
            raise UserError(
                f"{where}: the output `{name}` has no loss, so it would not learn "
                f"`{label.heads[name].name}`",
                remedy=f'Give it one: `compile(loss={{"{name}": …}})`.',
            )
        yield names.index(name), name, compiled_losses[name]
    others = [name for name in names if compiled_losses[name] is not None]
    others = [name for name in others if name not in label.outputs]
    if others and not own_step:
        raise UserError(
            f"{where}: the output `{others[0]}` has a loss, but `label` does not say "
            "what it learns",
            key="label",
            remedy=f"Add a head, `{others[0]}: COLUMN`, or leave out the loss.",
        )


class Unchanged(TensorCallback):
    """Fails if a callback changes a setting that a traced step no longer reads.

    For example, `trainable` of a layer. Must come after the callbacks that it checks.

    Args:
      model: The compiled model, before training.
    """

    def __init__(self, model: tf.keras.Model):
        super().__init__()
        self._begin(model)

    def _begin(self, model: tf.keras.Model) -> None:
        self._watched = weakref.ref(model)
        self._before = _settings(model)
        self._is_traced = False

    def set_model(self, model: tf.keras.Model) -> None:
        """Begins anew with the model of another phase."""
        super().set_model(model)
        if model is not self._watched():
            self._begin(model)

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks `trainable`, which tf-keras has read in `compile`."""
        if not keras3.is_model(self.model):
            self._check(".trainable")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Records the settings before the first step is traced; later, checks them."""
        if self._is_traced:
            self._check()
        self._before, self._is_traced = _settings(self.model), True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Checks the changes of other callbacks within an epoch or at its end."""
        self._check()

    def _check(self, suffix: str = "") -> None:
        """Raises a UserError if a setting that ends with `suffix` has changed."""
        if self.model.run_eagerly:
            return
        now = _settings(self.model)
        changed = [
            name
            for name, value in self._before.items()
            if name.endswith(suffix) and name in now and now[name] != value
        ]
        if changed:
            raise UserError(
                f"callbacks: {_listed(changed)} was changed during training, which has "
                "no effect: the step was traced before. Set it in `build_model` before "
                "`compile`; for phases that train other layers, set `trainer.phases`. "
                "The learning rate may be changed."
            )


def _settings(model: tf.keras.Model) -> dict[str, Any]:
    """Settings that a traced step treats as constants, e.g. `optimizer.beta_1`."""
    settings: dict[str, Any] = {"model.optimizer": id(model.optimizer)}
    settings["model.loss"] = id(model.loss)
    for layer in compiled.layers(model):
        for name in _WATCHED:
            if hasattr(layer, name):
                settings[f"{layer.name}.{name}"] = getattr(layer, name)
    optimizer = keras3.unscaled(model.optimizer)
    # Not the legacy optimizers (before Keras 2.11), whose settings are variables.
    known = isinstance(optimizer, keras3.classes("optimizers", "Optimizer"))
    if known and keras3.is_of_keras(optimizer):
        # Not `get_config`, which a schedule for the learning rate may lack.
        for name in inspect.signature(type(optimizer)).parameters:
            if name != "learning_rate" and hasattr(optimizer, name):
                settings[f"optimizer.{name}"] = getattr(optimizer, name)
    return settings


def by_output(model: tf.keras.Model, output: Any) -> dict[str, tuple[Any, Any]]:
    """The loss (or None) and the tensor of each output, by the output's name.

    Args:
      model: A compiled model.
      output: The model's output: tensors `[rows, …]`, flat or nested.
    """
    names, tensors = _output_names(model, output), tf.nest.flatten(output)
    losses = _by_output(model.loss, names)
    pairs = zip(names, tensors, strict=True)
    return {name: (losses.get(name), tensor) for name, tensor in pairs}


def losses(model: tf.keras.Model, outputs: Sequence[str]) -> dict[str, Any]:
    """The loss of each output as `compile` got it; None where it is not known.

    Args:
      model: A compiled model.
      outputs: Names of the outputs.
    """
    names, loss = list(getattr(model, "output_names", None) or ()), model.loss
    if not {*outputs} <= {*names}:  # a dict of outputs of layers with other names
        names = [] if isinstance(loss, (list, tuple)) else [*outputs]
    by_name = _by_output(loss, names)
    return {name: by_name.get(name) for name in outputs}


def _output_names(model: tf.keras.Model, output: Any) -> list[str]:
    if isinstance(output, Mapping):
        return sorted(output)
    count = len(tf.nest.flatten(output))
    with contextlib.suppress(AttributeError, TypeError):
        names = list(model.output_names)
        if len(names) == count:
            return names
    return [f"output_{i + 1}" for i in range(count)]


def _by_output(loss: Any, names: list[str]) -> dict[str, Any]:
    """The loss of each output; a single loss applies to all."""
    if isinstance(loss, Mapping):
        return {name: loss.get(name) for name in names}
    if isinstance(loss, (list, tuple)):
        return dict(zip(names, loss, strict=False))
    return dict.fromkeys(names, loss)


def _name(metric: Any) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "name", str(metric))


def _listed(names: list[str]) -> str:
    return listed(quoted(names))
