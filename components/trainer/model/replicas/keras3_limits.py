"""Limits of Keras 3 on several replicas: rejected before the first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.spec import Settings

_ELSEWHERE = "train with `trainer.distribution.strategy: one_device`, or build it with "
_ELSEWHERE += "tf-keras (`import tf_keras as keras`)"


@dataclasses.dataclass(frozen=True)
class Limit:
    """A feature that Keras 3 does not support on several replicas.

    Attributes:
      applies: Returns whether a compiled model uses it, under the settings of the run.
      what: The feature, for the message, e.g. "scales its loss (float16)".
      why: The behavior of Keras 3, e.g. "fails in the first step".
      remedy: A remedy besides `_ELSEWHERE`.
      in_fit: Whether it affects Keras's `fit` only, not the user's own loop.
    """

    applies: Callable[[Any, Settings], bool]
    what: str
    why: str
    remedy: str
    in_fit: bool = False


LIMITS = (
    Limit(
        lambda model, _: bool(_of_optimizer(model, "gradient_accumulation_steps")),
        "has an optimizer with `gradient_accumulation_steps`",
        "fails in the first step",
        "Remove the argument and choose a larger `trainer.batch_size`",
    ),
    Limit(
        lambda model, _: bool(_of_optimizer(model, "ema_overwrite_frequency")),
        "has an optimizer with `ema_overwrite_frequency`",
        "fails in the first step",
        "Remove the argument (the weights are averaged at the end of training)",
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "train_step"),
        "has a `train_step` of its own",
        "gives it the loss divided by the replicas, and it reports a fraction",
        "Remove the method, write the loop as `run_fn(context)`",
        in_fit=True,
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "test_step"),
        "has a `test_step` of its own",
        "gives it the loss divided by the replicas, and it reports a fraction",
        "Remove the method",
        in_fit=True,
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "compute_loss"),
        "has a `compute_loss` of its own",
        "adds up its values, so that a mean counts once for each replica",
        "Pass the loss to `compile`, with one value per row",
        in_fit=True,
    ),
)


def check(
    model: Any, settings: Settings, replicas: int, where: str, *, own_loop: bool
) -> None:
    """Rejects a Keras 3 model that uses one of `LIMITS` on several replicas.

    Args:
      model: A compiled model of either Keras.
      settings: The settings of the run.
      replicas: Copies of the model that train together.
      where: Name of the function that made it, for the message: `FILE: build_model`.
      own_loop: Whether the user's loop trains instead of `fit`.

    Raises:
      UserError: The model uses one of `LIMITS`.
    """
    if replicas == 1 or not keras3.is_model(model):
        return
    for limit in LIMITS:
        if not (limit.in_fit and own_loop) and limit.applies(model, settings):
            raise UserError(
                f"{where}: returned a Keras 3 model that {limit.what}: on several "
                f"replicas Keras 3 {limit.why}. {limit.remedy}, {_ELSEWHERE}."
            )


def _of_optimizer(model: Any, name: str) -> Any:
    return getattr(keras3.unscaled(model.optimizer), name, None)
