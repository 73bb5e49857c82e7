"""Missing values: columns that may lack one, and how `data.missing` fills them.

A column that `data.missing` names is of varying length in the raw spec, whether or not
today's data have an empty cell of it, and dense in the graph: the same for analysis,
training and serving. The raw examples, their statistics and requests keep the gap.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_metadata.proto.v0 import schema_pb2

from strategos.components.errors import UserError
from strategos.components.records.emptiness import Emptiness
from strategos.components.wording import choices, did_you_mean

Fillings = Mapping[str, str | int | float]
"""Value in place of a missing one, by raw column."""

WHY_TEXT = (
    "The run's report says why a column is text; correct the value there if it should "
    "be a number."
)
_TYPES = {str: schema_pb2.BYTES, int: schema_pb2.INT, float: schema_pb2.FLOAT}


def filled(value: tf.Tensor | tf.SparseTensor, filling: str | int | float) -> tf.Tensor:
    """A raw column as a dense tensor, whether or not today's data have empty cells.

    For a `preprocessing_fn` of a pipeline without `data.missing`.

    Args:
      value: `inputs[COLUMN]`: [rows, 1] if dense, at most one value a row if sparse.
      filling: Stands in place of a missing value.

    Returns:
      [rows, 1], of the dtype of `value`.
    """
    if not isinstance(value, tf.SparseTensor):
        return value
    default = tf.constant(filling, value.dtype)
    return tft.sparse_tensor_to_dense_with_shape(value, [None, 1], default)


def filling(
    function: Callable[[Mapping[str, Any]], Any], fillings: Fillings
) -> Callable[[Mapping[str, Any]], Any]:
    """Wraps a function of raw columns, so that it gets the `fillings` of missing ones.

    Args:
      function: `preprocessing_fn(inputs)`.
      fillings: By column; the other columns stay as they are.
    """

    def preprocessing_fn(inputs: Mapping[str, Any]) -> Any:
        dense = {name: filled(inputs[name], value) for name, value in fillings.items()}
        return function({**inputs, **dense})

    return preprocessing_fn if fillings else function


def of_varying_length(
    schema: schema_pb2.Schema,
    fillings: Fillings,
    empty: Mapping[str, Emptiness],
) -> schema_pb2.Schema:
    """The schema of the raw examples, where columns of `fillings` may be missing.

    Args:
      schema: Schema of the raw examples.
      fillings: By column.
      empty: The columns without a value in some rows.

    Raises:
      UserError: A column of `fillings` does not exist, has several values in a row, or
        holds values of another type.
    """
    filled = schema_pb2.Schema.FromString(schema.SerializeToString())
    features = {feature.name: feature for feature in filled.feature}
    groups = filled.tensor_representation_group
    for name, value in fillings.items():
        if name not in features:
            raise _unknown(name, features)
        feature = features[name]
        _check_single(feature)
        if name in empty and empty[name].all:
            feature.type = _TYPES[type(value)]  # no value has shown the type
        _check_type(feature, value)
        feature.ClearField("shape")
        for group in groups.values():
            group.tensor_representation.pop(name, None)
    return filled


def _unknown(name: str, features: Mapping[str, Any]) -> UserError:
    return UserError(
        f"the data have no column `{name}`",
        key="data.missing",
        expected=choices(sorted(features)),
        remedy=did_you_mean(name, features),
    )


def _check_single(feature: schema_pb2.Feature) -> None:
    counts = feature.value_count
    several = feature.HasField("value_count") and counts.max != 1
    if several or math.prod(dim.size for dim in feature.shape.dim) != 1:
        raise UserError(
            f"`{feature.name}` may have several values in a row",
            key="data.missing",
            remedy="Only a column of single values can be filled: remove it there, and "
            "use the tf.SparseTensor in `preprocessing_fn`.",
        )


def _check_type(feature: schema_pb2.Feature, value: str | int | float) -> None:
    allowed: dict[int, tuple[str, type | tuple[type, ...]]] = {
        schema_pb2.BYTES: ("a text", str),
        schema_pb2.INT: ("a whole number", int),
        schema_pb2.FLOAT: ("a number", (int, float)),
    }
    described, types = allowed[feature.type]
    if not isinstance(value, types):
        kind = schema_pb2.FeatureType.Name(feature.type)
        raise UserError(
            f"the column is {kind}",
            key=f"data.missing.{feature.name}",
            received=json.dumps(value, ensure_ascii=False),
            expected=described,
            remedy=WHY_TEXT if kind == "BYTES" else "",
        )
