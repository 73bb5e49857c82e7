"""The section `trainer.optimizer`: how gradients become weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field
from pydantic_core import InitErrorDetails

from strategos.pipeline.config.introspect import Allowed
from strategos.pipeline.config.problems import reject_at
from strategos.pipeline.config.types import Positive, Section

_Limit = Annotated[float, Field(gt=0), Allowed("a number above 0")]


class Clip(Section):
    """Limits of gradients, one of the three; `null` for the others."""

    norm: _Limit | None = Field(
        None, description="Largest norm of the gradient of each weight (`clipnorm`)."
    )
    global_norm: _Limit | None = Field(
        None,
        description="Largest norm of all gradients together (`global_clipnorm`).",
    )
    value: _Limit | None = Field(
        None, description="Largest absolute value of a gradient (`clipvalue`)."
    )

    def _problems(self) -> Iterator[InitErrorDetails]:
        names = [x for x in type(self).model_fields if getattr(self, x) is not None]
        if len(names) != 1:
            yield reject_at(
                (),
                received=", ".join(names) or "none of the three",
                expected="one of norm, global_norm, value",
            )


class WeightAverage(Section):
    """The mean of the weights after several epochs (SWA)."""

    from_epoch: Positive = Field(
        description="First epoch whose weights count, from 1: a constant learning rate "
        "should have found the region of a good model by then."
    )


class Optimizer(Section):
    """Settings of the optimizer that `build_model` makes, of either Keras."""

    clip: Clip | None = Field(
        None,
        description="Limits of the gradients, summed over replicas and micro-batches.",
    )
    ema: (
        Annotated[float, Field(gt=0, lt=1), Allowed("a number between 0 and 1")] | None
    ) = Field(
        None,
        description="Momentum of the exponential moving average of the weights, such "
        "as 0.999, which is exported (`use_ema`, `ema_momentum`).",
    )
    swa: WeightAverage | None = Field(
        None,
        description="Exports the mean of the weights after several epochs (stochastic "
        "weight averaging).",
    )


def conflicts(
    optimizer: Optimizer, epochs: int | None, choosing: bool
) -> Iterator[InitErrorDetails]:
    """Settings of `trainer` that contradict the averages of weights.

    Args:
      optimizer: The section.
      epochs: `trainer.epochs`; None if epochs end after a number of steps.
      choosing: Whether a callback exports the weights of the best epoch.
    """
    if optimizer.swa is None:
        return
    at, first = ("optimizer", "swa"), optimizer.swa.from_epoch
    if epochs is not None and first > epochs:
        yield reject_at(
            (*at, "from_epoch"),
            f"training has {epochs} epochs",
            received=str(first),
            remedy="Lower it, or raise `trainer.epochs`.",
        )
    if optimizer.ema is not None:
        remedy = "Remove one of the two settings."
        yield reject_at(at, "`ema` averages the weights, too", remedy=remedy)
    if choosing:
        yield reject_at(
            at,
            "exports an average, but `best_checkpoint` and `early_stopping` (of "
            "`callbacks`, or of the last phase) the weights of the best epoch",
            remedy="Remove one of the settings.",
        )
