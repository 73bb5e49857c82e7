"""Pairs the weights of two models by the names that a user gave to layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, partitioned_variables

_NUMBER = re.compile(r"_\d+$")


def paired(
    model: tf.keras.Model,
    ours: Sequence[Sequence[Any]],
    theirs: Sequence[Sequence[Any]],
    by_structure: Mapping[int, int],
    path: str,
) -> dict[int, int]:
    """Pairs the tables of a model with the tables of an earlier model.

    Args:
      model: A built model.
      ours: `[name, …]` of each table of the model.
      theirs: `[name, …]` of each table of the earlier model.
      by_structure: Indices of earlier tables by index of a table, paired by structure.
      path: Prefix of the earlier model's files, for the message.

    Returns:
      Indices of earlier tables by index of a table.

    Raises:
      UserError: A named layer would get the weights of another layer, e.g. `user` the
        weights of `item`.
    """
    named: dict[int, int] = {}
    owners = _owners(model)
    for layer in {id(x): x for x in owners.values()}.values():
        tables = sorted(i for i, owner in owners.items() if owner is layer)
        before = [j for j, x in enumerate(theirs) if layer.name in _parts(x[0])]
        if len(before) == len(tables):
            named |= dict(zip(tables, before, strict=True))
    rest = {i: j for i, j in by_structure.items() if i not in named}
    for i, j in rest.items():
        if j in named.values() or _is_of_another(owners.get(i), ours[i], theirs[j]):
            raise UserError(
                f"the weights of {path} are of another model than `build_model` makes "
                f"now: {ours[i][0]} here is in the place of {theirs[j][0]} there",
                key="trainer.warm_start",
                remedy="Give each layer the name that it had, or set "
                "`warm_start: null` to begin anew.",
            )
    return {**rest, **named}


def _owners(model: tf.keras.Model) -> dict[int, Any]:
    """The innermost layer with a user-given, unique name, by index of a table."""
    index = partitioned_variables.indices(partitioned_variables.tables_of(model))
    layers = [x for x in compiled.layers(model)[1:] if not _is_automatic(x, x.name)]
    counts = Counter(x.name for x in layers)
    return {
        index[id(variable)]: layer
        for layer in layers  # each before those inside of it
        if counts[layer.name] == 1
        for variable in compiled.weights(layer)
        if id(variable) in index
    }


def _is_automatic(layer: Any, name: str) -> bool:
    """Whether Keras named a layer after its class, e.g. `dense_1` or `forward_lstm`."""
    spaced = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", type(layer).__name__)
    kind = re.sub(r"([a-z])([A-Z])", r"\1_\2", spaced).lower()
    kinds = (kind, f"private{kind}", f"forward_{kind}", f"backward_{kind}")
    return _NUMBER.sub("", name) in kinds


def _is_of_another(layer: Any, mine: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether an earlier table belongs to a layer with another user-given name."""
    ours, theirs = _parts(mine[0]), _parts(other[0])
    if layer is None or len(ours) != len(theirs) or layer.name not in ours:
        return False
    before = theirs[ours.index(layer.name)]
    same = _NUMBER.sub("", before) == _NUMBER.sub("", layer.name)
    return not (same or _is_automatic(layer, before))


def _parts(name: str) -> list[str]:
    return name.removesuffix(":0").split("/")
