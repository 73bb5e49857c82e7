"""Limits of Keras 3 on several replicas: rejected before the first step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from strategos.components.errors import UserError
from strategos.components.trainer.compat import keras3

_SEVERAL = ("mirrored", "multi_worker_mirrored", "central_storage")
_SERVERS = "parameter_server"
_ELSEWHERE = "train with `trainer.distribution.strategy: one_device`, or build it with "
_ELSEWHERE += "tf-keras (`import tf_keras as keras`)"


@dataclasses.dataclass(frozen=True)
class Limit:
    """A feature that Keras 3 does not support on several replicas.

    Attributes:
      applies: Returns whether a compiled model uses it, under `trainer.distribution`.
      what: The feature, for the message, e.g. "scales its loss (float16)".
      why: The behavior of Keras 3, e.g. "fails in the first step".
      remedy: A remedy besides `_ELSEWHERE`.
      loop: The only loop that it affects: Keras's `fit` or the user's `run_fn`.
      under: The strategies that it affects.
    """

    applies: Callable[[Any, Mapping[str, Any]], bool]
    what: str
    why: str
    remedy: str
    loop: Literal["fit", "run_fn"] | None = None
    under: Sequence[str] = _SEVERAL


LIMITS = (
    Limit(
        lambda model, _: bool(_of_optimizer(model, "gradient_accumulation_steps")),
        "has an optimizer with `gradient_accumulation_steps`",
        "fails in the first step",
        "Remove the argument and choose a larger `trainer.batch_size`",
        under=(*_SEVERAL, _SERVERS),
    ),
    Limit(
        lambda model, _: bool(_of_optimizer(model, "ema_overwrite_frequency")),
        "has an optimizer with `ema_overwrite_frequency`",
        "fails in the first step",
        "Remove the argument (the weights are averaged at the end of training)",
        under=(*_SEVERAL, _SERVERS),
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "train_step"),
        "has a `train_step` of its own",
        "gives it the loss divided by the replicas, and it reports a fraction",
        "Remove the method, write the loop as `run_fn(context)`",
        loop="fit",
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "test_step"),
        "has a `test_step` of its own",
        "gives it the loss divided by the replicas, and it reports a fraction",
        "Remove the method",
        loop="fit",
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "compute_loss"),
        "has a `compute_loss` of its own",
        "adds up its values, so that a mean counts once for each replica",
        "Pass the loss to `compile`, with one value per row",
        loop="fit",
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "compute_metrics"),
        "has a `compute_metrics` of its own",
        "gives it the metrics of one replica's rows",
        "Pass the metrics to `compile`",
        loop="fit",
    ),
    Limit(
        lambda model, _: isinstance(model.optimizer, keras3.scaling_optimizer()),
        "scales its loss (mixed precision in float16)",
        "fails in the first step: it updates the scale in a condition",
        "Set `trainer.mixed_precision: bfloat16`",
        under=("central_storage",),
    ),
    Limit(
        lambda model, _: keras3.is_overridden(model, "train_step"),
        "has a `train_step` of its own",
        "needs a lock around the update, which the method does not take",
        "Remove the method",
        loop="fit",
        under=(_SERVERS,),
    ),
    Limit(
        lambda _, distribution: bool(
            (distribution.get(_SERVERS) or {}).get("variable_partitioner")
        ),
        "has variables split among the servers",
        "knows no split variables",
        "Remove `trainer.distribution.parameter_server.variable_partitioner`",
        under=(_SERVERS,),
    ),
    Limit(
        lambda *_: True,
        "`run_fn` trains",
        "counts the old value of a metric once for each replica",
        "Use `trainer.distribution.strategy: mirrored`",
        loop="run_fn",
        under=("central_storage",),
    ),
)


def check(
    model: Any,
    distribution: Mapping[str, Any],
    replicas: int,
    where: str,
    *,
    strategy: str,
    own_loop: bool,
) -> None:
    """Rejects a Keras 3 model that uses one of `LIMITS` on several replicas.

    Args:
      model: A compiled model of either Keras.
      distribution: `trainer.distribution`.
      replicas: Copies of the model that train together.
      where: Name of the function that made it, for the message: `FILE: build_model`.
      strategy: Name of the strategy.
      own_loop: Whether the user's loop trains instead of `fit`.

    Raises:
      UserError: The model uses one of `LIMITS`.
    """
    is_alone = replicas == 1 and strategy != _SERVERS
    if is_alone or not keras3.is_model(model):
        return
    loop = "run_fn" if own_loop else "fit"
    for limit in LIMITS:
        concerns = limit.loop in (None, loop) and strategy in limit.under
        if concerns and limit.applies(model, distribution):
            special = strategy == _SERVERS or len(limit.under) == 1
            place = f"under {strategy}" if special else "on several replicas"
            raise UserError(
                f"{where}: returned a Keras 3 model that {limit.what}: {place} "
                f"Keras 3 {limit.why}. {limit.remedy}, {_ELSEWHERE}."
            )


def _of_optimizer(model: Any, name: str) -> Any:
    return getattr(keras3.unscaled(model.optimizer), name, None)
