"""Sentences on a training for a run's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LAST = 5  # The end of a training: this part of its epochs, a fifth, at least one.
_SHARE = 0.05  # Of the fall since the first epoch: less than this is no fall any more.


def trained(facts: Mapping[str, Any]) -> str:
    """The training's strategy, e.g. `mirrored on 2 replicas, restarted once: …`.

    Args:
      facts: The Trainer's record, see `Run.trainer`.
    """
    text, replicas = facts["strategy"], facts.get("replicas", 1)
    restarts = facts.get("restarts", 0)
    if replicas > 1:
        text += f" on {replicas} replicas"
    if restarts:
        text += f", restarted {'once' if restarts == 1 else f'{restarts} times'}"
    return f"{text}: {facts.get('reason', '')}"


def still_falling(history: Mapping[str, Sequence[float]] | None) -> str:
    """Reports that the loss was still falling when training ended; else "".

    It was if the last epoch has the least loss, and the last fifth of the epochs has
    more than a twentieth of the fall since the first epoch. For example, 0.70, 0.60,
    0.55 was still falling; 0.70, 0.50, 0.495 was not.

    Args:
      history: Values by metric, one for each epoch: `val_loss`, or `loss` without it.
    """
    name = next(
        (each for each in ("val_loss", "loss") if (history or {}).get(each)), ""
    )
    values = (history or {}).get(name, ())
    end = max(1, round(len(values) / _LAST))
    if len(values) < 2:
        return ""
    before, last = values[-1 - end], values[-1]
    fell = last <= min(values) and before - last > _SHARE * (values[0] - last)
    if not fell:  # also for NaN
        return ""
    return (
        f"{name} was still falling: {before:.4g} after {len(values) - end} of "
        f"{len(values)} epochs, {last:.4g} at the end; a larger trainer.epochs "
        "may give a better model"
    )
