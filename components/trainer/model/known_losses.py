"""Keras losses with known requirements on outputs and labels."""

from __future__ import annotations

import dataclasses
from typing import Any

_PACKAGES = ("tf_keras.", "keras.")
_REGRESSION = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh")
_ALIASES = {
    "mse": "mean_squared_error",
    "mae": "mean_absolute_error",
    "huber_loss": "huber",
    "logcosh": "log_cosh",
    "binary_focal_crossentropy": "binary_crossentropy",
    "categorical_focal_crossentropy": "categorical_crossentropy",
}


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss of Keras: name in snake case, e.g. `huber`; whether it takes logits."""

    name: str
    from_logits: bool


def known_loss(loss: Any) -> Loss | None:
    """The loss of a compiled model; None if its requirements are not known here."""
    if isinstance(loss, (list, tuple)) and len(loss) == 1:
        loss = loss[0]
    if isinstance(loss, dict) and len(loss) == 1:
        loss = next(iter(loss.values()))
    if isinstance(loss, str):
        name, from_logits = _snake(loss), False
    elif type(loss).__module__.startswith(_PACKAGES):
        from_logits = bool(loss.get_config().get("from_logits", False))
        name = _snake(type(loss).__name__)
    elif getattr(loss, "__module__", "").startswith(_PACKAGES):
        name, from_logits = loss.__name__, False
    else:
        return None
    name = _ALIASES.get(name, name)
    known = name.endswith("crossentropy") or name in _REGRESSION
    return Loss(name, from_logits) if known else None


def _snake(name: str) -> str:
    letters = (f"_{c.lower()}" if c.isupper() else c for c in name)
    return "".join(letters).lstrip("_")
