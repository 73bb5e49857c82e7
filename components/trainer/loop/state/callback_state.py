"""The state of callbacks in a checkpoint: patience, best value, best weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from strategos.components import events
from strategos.components.trainer.compat import keras3
from strategos.components.trainer.compat.callbacks import own
from strategos.components.trainer.loop.progress import EvaluatedWeights, Progress
from strategos.components.trainer.loop.state import typed_values
from strategos.components.trainer.loop.state.typed_values import Encoded
from strategos.components.trainer.model.effects import Unchanged
from strategos.components.wording import abridged, quoted

_NOT_STATE = ("model", "_model", "params", "validation_data", "monitor_op")
"""Attributes that Keras sets itself."""


class CallbackState:
    """The state of all callbacks, the user's and Keras's, for checkpoints.

    The state of a callback is each attribute that differs from its value before or
    after `on_train_begin`, e.g. `wait` of EarlyStopping. Progress, EvaluatedWeights,
    Unchanged and TensorBoard are left out: their state must not be restored, e.g.
    clocks and a running profiler.

    Args:
      callbacks: The callbacks in their order, before training begins.
    """

    def __init__(self, callbacks: Sequence[Any]):
        passing: tuple[type, ...] = (Progress, EvaluatedWeights, Unchanged)
        passing += keras3.classes("callbacks", "TensorBoard")
        followed = map(own, callbacks)
        self._callbacks = [x for x in followed if not isinstance(x, passing)]
        self._made = self._begun = self._encoded()
        self._named: set[str] = set()

    def begin(self) -> None:
        """Records the state after `on_train_begin` of all callbacks."""
        self._begun = self._encoded()

    def take(self) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """Returns the state as a checkpoint stores it.

        Returns:
          A list with a dict for each callback (`of`: its class, `set`: JSON by
          attribute, `deleted`: names of attributes), and all arrays by name.
        """
        changes = []
        arrays: dict[str, np.ndarray] = {}
        moments = zip(self._callbacks, self._moments(), strict=True)
        for callback, (now, made, begun) in moments:
            changed = {
                name: value.stored(arrays)
                for name, value in now.items()
                if value.is_kept
                and not (value == made.get(name) and value == begun.get(name))
            }
            gone = sorted(begun.keys() - now.keys())
            of = _class_of(callback)
            changes.append({"of": of, "set": changed, "deleted": gone})
        return changes, arrays

    def give(
        self, stored: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Restores the state of the callbacks from a result of `take`.

        The chief has stored it, and other tasks may have fewer callbacks, or others:
        each gets the state of the next one of its class, if there is one.

        Args:
          stored: The JSON of each callback, in their order.
          arrays: All arrays by name.
        """
        for callback, kept in _paired(self._callbacks, stored):
            attributes = vars(callback)
            for name in kept["deleted"]:
                attributes.pop(name, None)
            for name, value in kept["set"].items():
                current = attributes.get(name)
                attributes[name] = typed_values.decoded(value, arrays, current)
            # Keras 3 negates it when it sets `monitor_op`, after each start.
            if "min_delta" in attributes and attributes.get("monitor_op", 0) is None:
                callback.min_delta = abs(callback.min_delta)

    def give_older(
        self, plain: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Restores a state written by a version before typed values.

        Args:
          plain: JSON-able attributes of each callback, in their order.
          arrays: Arrays of attributes that are lists, by `number/attribute/index`.
        """
        for callback, kept in zip(self._callbacks, plain, strict=True):
            vars(callback).update(kept)
        by_attribute: dict[tuple[int, str], dict[int, np.ndarray]] = {}
        for key, array in arrays.items():
            number, name, index = key.split("/")
            by_attribute.setdefault((int(number), name), {})[int(index)] = array
        for (place, name), parts in by_attribute.items():
            values = [parts[part] for part in range(len(parts))]
            vars(self._callbacks[place])[name] = values

    def name_lost(self) -> None:
        """Warns once of each changed attribute that a checkpoint cannot store.

        For example, a file or an object of the user's own class. Callbacks of Keras
        are left out.
        """
        lost = {
            f"{type(callback).__name__}.{name}"
            for callback, (now, _, begun) in zip(
                self._callbacks, self._moments(), strict=True
            )
            if not keras3.is_of_keras(callback)
            for name, value in now.items()
            if not value.is_kept and value != begun.get(name)
        }
        new = sorted(lost - self._named)
        self._named |= lost
        if new:
            events.emit(
                "warning",
                message=f"callbacks: {abridged(quoted(new), 5)} cannot be kept in a "
                "checkpoint: after a restart, training goes on with the value of "
                "`on_train_begin`. Keep numbers, text, arrays, lists, dicts or sets "
                "of them in an attribute instead",
            )

    def _moments(self) -> list[tuple[dict[str, Encoded], ...]]:
        """Each callback's attributes now, before and after `on_train_begin`."""
        return list(zip(self._encoded(), self._made, self._begun, strict=True))

    def _encoded(self) -> list[dict[str, Encoded]]:
        return [
            {
                name: Encoded(value)
                for name, value in vars(callback).items()
                if name not in _NOT_STATE
            }
            for callback in self._callbacks
        ]


def _class_of(callback: Any) -> str:
    return type(callback).__qualname__  # a host may load modules by other names


def _paired(
    callbacks: Sequence[Any], stored: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yields each callback that has a stored state, with this state."""
    rest = list(stored)
    for callback in callbacks:
        name = _class_of(callback)
        # An older checkpoint names no classes: its callbacks are in the same order.
        places = (i for i, kept in enumerate(rest) if kept.get("of", name) == name)
        if (place := next(places, None)) is not None:
            yield callback, rest.pop(place)
