"""Variables that parameter servers hold in parts, treated as the whole tables.

A partitioner splits a variable along its first axis into variables named `…/part_0`,
`…/part_1`, …, which Keras lists one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.trainer.compat import compiled

_PART = re.compile(r"/part_(\d+)(:0)?$")


def tables(variables: Sequence[tf.Variable]) -> list[list[tf.Variable]]:
    """Groups variables into tables: a list of parts for each.

    Args:
      variables: Variables of a model, in Keras's order.
    """
    groups: list[list[tf.Variable]] = []
    for variable in variables:
        part = _PART.search(variable.name)
        if part and int(part[1]):
            groups[-1].append(variable)
        else:
            groups.append([variable])
    return groups


def tables_of(model: tf.keras.Model) -> list[list[tf.Variable]]:
    """The tables of all variables of a model, see `compiled.variables`."""
    return tables(compiled.variables(model))


def indices(groups: Sequence[Sequence[Any]]) -> dict[int, int]:
    """The index of the table of each variable, by the variable's `id`."""
    return {id(part): i for i, table in enumerate(groups) for part in table}


def name(table: Sequence[tf.Variable]) -> str:
    """The name of a table, without the suffix of a part."""
    return _PART.sub(r"\2", table[0].name)


def shape(table: Sequence[tf.Variable]) -> list[int]:
    """The shape of a table, over all its parts."""
    first = table[0].shape.as_list()
    if len(table) == 1:
        return first
    return [sum(part.shape[0] for part in table), *first[1:]]


def use_tables(model: tf.keras.Model) -> None:
    """Replaces `get_weights` and `set_weights` of a model by this module's functions.

    Args:
      model: A built model.
    """
    model.get_weights = functools.partial(get_weights, model)
    model.set_weights = functools.partial(set_weights, model)


def settle_weights(model: tf.keras.Model) -> None:
    """Makes `get_weights` and `set_weights` of a model list the same in all phases.

    Callbacks that keep the best weights, or a mean of them, take the weights of one
    phase for those of another; tf-keras lists them by `trainable`. Nor can callbacks
    keep the text of adapted vocabularies, or put it back.

    Args:
      model: A built model.
    """
    if [*map(id, compiled.weights(model))] != [*map(id, model.weights)]:
        use_tables(model)


def get_weights(model: tf.keras.Model) -> list[np.ndarray]:
    """The variables' values as if no table were split; without vocabularies."""
    return [
        np.concatenate([part.numpy() for part in table])
        if len(table) > 1
        else table[0].numpy()
        for table in tables(compiled.weights(model))
    ]


def set_weights(model: tf.keras.Model, weights: Sequence[np.ndarray]) -> None:
    """Assigns weights as `get_weights` returns them.

    Args:
      model: A built model.
      weights: One array per table.
    """
    for table, values in zip(tables(compiled.weights(model)), weights, strict=True):
        first = 0
        for part in table:
            if len(table) == 1:
                part.assign(values)
                continue
            rows = part.shape[0]
            part.assign(values[first : first + rows])
            first += rows
