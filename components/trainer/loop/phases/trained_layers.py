"""Chooses the layers that a phase trains, and its learning rate: `trainer.phases`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3, optimizers
from strategos.components.trainer.phases import Phase
from strategos.components.wording import choices, did_you_mean


def set_rate(model: tf.keras.Model, phase: Phase) -> None:
    """Sets the learning rate of a phase in the optimizer of a compiled model.

    Args:
      model: The compiled model.
      phase: The phase.

    Raises:
      UserError: The optimizer follows a schedule, or has no learning rate.
    """
    if phase.learning_rate is None:
        return
    optimizer = keras3.unscaled(model.optimizer)
    rate = optimizers.rate_of(optimizer)
    if rate is None or callable(rate):
        why = f"follows a schedule ({type(rate).__name__})"
        if rate is None:
            why = f"is a {type(optimizer).__name__}, which has no `learning_rate`"
        raise UserError(
            f"the optimizer that `build_model` makes {why}",
            key=phase.key("learning_rate"),
            received=f"{phase.learning_rate:g}",
            remedy="Give the optimizer a number, or remove this key: `build_model` may "
            "choose a schedule by `context.phase`.",
        )
    optimizer.learning_rate = phase.learning_rate


def choose(model: tf.keras.Model, phase: Phase, phases: Iterable[Phase]) -> None:
    """Sets `trainable` of a compiled model's layers as a phase wants it.

    Args:
      model: The compiled model, with all its layers.
      phase: The phase that begins.
      phases: All phases: each of them must fit the model.

    Raises:
      UserError: A layer that a phase names does not exist, a phase names more last
        layers than there are, or the phase would train nothing.
    """
    for each in phases:
        _trained(model, each)
    # A change after `compile` is the user's mistake: `effects` reports it.
    if phase.trainable is None or compiled.changed_trainable(model):
        return
    base, chosen = _base(model, phase), _trained(model, phase)
    base.trainable = bool(chosen)
    if phase.trainable not in ("all", "none"):
        _set(base, {id(layer) for layer in chosen})
    if not model.trainable_variables:
        raise UserError(
            "no layer of the model would train",
            key=phase.key("trainable"),
            received=str(phase.trainable),
            remedy="Choose other layers; `build_model` may also have set `trainable` "
            "of the other layers to False.",
        )
    compiled.keep_trainable(model)


def _base(model: tf.keras.Model, phase: Phase) -> Any:
    """The layer that `trainable` chooses from: `base`, or the model."""
    if phase.base is None:
        return model
    known = {layer.name: layer for layer in _within(model)}
    if phase.base not in known:
        raise _unknown(phase, "base", phase.base, known)
    return known[phase.base]


def _trained(model: tf.keras.Model, phase: Phase) -> list[Any]:
    """The layers that a phase names, each with all layers within it."""
    base, wanted = _base(model, phase), phase.trainable
    if wanted in (None, "all", "none"):
        return [] if wanted == "none" else [base]
    inner = list(getattr(base, "layers", ()))
    if isinstance(wanted, int):
        if wanted > len(inner):
            where = f"`{phase.base}`" if phase.base else "the model"
            raise UserError(
                f"{where} has {len(inner)} layers",
                key=phase.key("trainable"),
                received=str(wanted),
                remedy="Name fewer, or `all`.",
            )
        return inner[-wanted:]
    names = [layer.name for layer in _within(base)]
    for pattern in wanted or ():
        if not fnmatch.filter(names, pattern):
            raise _unknown(phase, "trainable", pattern, names)
    return [
        layer
        for layer in _within(base)
        if any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in wanted or ())
    ]


def _set(part: Any, chosen: set[int]) -> None:
    """Sets `trainable` of the layers of a model.

    A layer that is no model is set as a whole: Keras lists the variables of a layer in
    another order where some of its parts are frozen.
    """
    for layer in part.layers:
        within = any(id(inner) in chosen for inner in _within(layer))
        layer.trainable = within or id(layer) in chosen
        if within and id(layer) not in chosen:
            _set(layer, chosen)


def _within(part: Any) -> Iterator[Any]:
    """The layers of a model, and those of the models among them; not `part` itself."""
    if keras3.package_of(part) is None:
        return
    for layer in part.layers:
        yield layer
        yield from _within(layer)


def _unknown(phase: Phase, setting: str, name: str, known: Iterable[str]) -> UserError:
    names = list(known)
    return UserError(
        "the model that `build_model` makes has no such layer",
        key=phase.key(setting),
        received=f"`{name}`",
        expected=choices(sorted(names)),
        remedy=did_you_mean(
            name, names, "Name a layer, or a pattern such as `conv5_*`."
        ),
    )
