"""Applies `trainer.optimizer` to the optimizer that `build_model` made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3, optimizers

_CLIP = {"norm": "clipnorm", "global_norm": "global_clipnorm", "value": "clipvalue"}
"""Keys of `trainer.optimizer.clip`, and Keras's arguments."""

_KEY = "trainer.optimizer"


def configure(model: tf.keras.Model, settings: Mapping[str, Any]) -> None:
    """Sets clipping and averaging, as arguments of the optimizer would.

    Call it before the optimizer has made its variables.

    Args:
      model: The compiled model, of either Keras.
      settings: `trainer.optimizer`.

    Raises:
      UserError: `build_model` has set the same, or the optimizer lacks the setting.
    """
    clip, ema = settings.get("clip") or {}, settings.get("ema")
    attributes = {
        _CLIP[name]: value for name, value in clip.items() if value is not None
    }
    optimizer = keras3.unscaled(model.optimizer)
    if attributes or ema is not None:
        _check_known(optimizer)
    if attributes:
        _check_free(optimizer, "clip", _CLIP.values())
    if ema is not None:
        _check_free(optimizer, "ema", ["use_ema"])
        attributes |= {"use_ema": True, "ema_momentum": ema}
    for name, value in attributes.items():
        setattr(optimizer, name, value)


def _check_known(optimizer: Any) -> None:
    kinds = keras3.classes("optimizers", "Optimizer")
    if isinstance(optimizer, kinds) and not optimizers.is_built(optimizer):
        return
    kind = type(optimizer).__name__
    made = isinstance(optimizer, kinds)
    raise UserError(
        f"`build_model` has already made the variables of {kind}"
        if made
        else f"{kind} is not an optimizer of `tf.keras.optimizers`",
        key=_KEY,
        remedy="Give the arguments to the optimizer in `build_model`"
        + ("." if made else ", or use one of `tf.keras.optimizers`."),
    )


def _check_free(optimizer: Any, setting: str, names: Any) -> None:
    for name in names:
        value = getattr(optimizer, name)
        if value:
            raise UserError(
                f"`build_model` makes {type(optimizer).__name__} with {name}={value}",
                key=f"{_KEY}.{setting}",
                remedy="Set it in one place only.",
            )
