"""The predictions of a model as columns of Arrow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.slow_imports import tf

_MOST_NAMED = 1000
"""Most classes of a model that get a field each for their probabilities."""


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of a model.

    Attributes:
      name: Its name.
      value: Arrow type of one number or text.
      shape: Its shape but for the rows; None for a size that is not fixed. A first size
        of 1 is left out: a number instead of a list of one.
      classes: Names of the values of a row; () for a list.
    """

    name: str
    value: pa.DataType
    shape: tuple[int | None, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def type(self) -> pa.DataType:
        """The type of the column: a value, nested lists of values, or a struct."""
        if self.classes:
            return pa.struct([pa.field(each, self.value) for each in self.classes])
        nested = self.value
        for _ in self.shape:
            nested = pa.list_(nested)
        return nested

    def column(self, values: np.ndarray) -> pa.Array:
        """The column of some rows.

        Args:
          values: Of the model, [rows, …].
        """
        rows = len(values)
        if self.classes:
            columns = [_flat(values[:, i], self.value) for i in range(values.shape[1])]
            return pa.StructArray.from_arrays(columns, list(self.classes))
        sizes = values.shape[values.ndim - len(self.shape) :]
        array = _flat(values.reshape(-1), self.value)
        for depth in reversed(range(len(sizes))):
            lists = rows * int(np.prod(sizes[:depth], dtype=np.int64))
            offsets = np.arange(lists + 1, dtype=np.int32) * np.int32(sizes[depth])
            array = pa.ListArray.from_arrays(pa.array(offsets), array)
        return array


def of_signature(
    outputs: Any, named: Mapping[str, Sequence[str]], model: str
) -> list[Output]:
    """The outputs of a signature, in order of their names.

    The values of an output are named by its classes, if they are known:
    those beyond the classes are out-of-vocabulary buckets, named by their index. More
    than a thousand classes, or equal names, leave a list.

    Args:
      outputs: TensorSpec by name.
      named: Names of the classes by output.
      model: The model, for messages.

    Raises:
      UserError: An output is no dense tensor with a row for each row.
    """
    result = []
    for name, spec in sorted(outputs.items()):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
            raise UserError(
                f"{model}: the output `{name}` of `{exported.SERVE}` is no dense "
                "tensor with a value for each row",
                remedy="Return such a tensor from the signature.",
            )
        shape = tuple(spec.shape[1:])
        shape = shape[1:] if shape[:1] == (1,) else shape
        output = Output(name, _value(spec.dtype), shape)
        if name in named and len(shape) == 1 and shape[0]:
            classes = exported.value_names(named[name], shape[0])
            if len(classes) <= _MOST_NAMED:
                output = dataclasses.replace(output, classes=classes)
        result.append(output)
    return result


def _value(dtype: Any) -> pa.DataType:
    if dtype == tf.string:
        return pa.string()
    if dtype in (tf.half, tf.bfloat16):
        return pa.float32()
    return pa.from_numpy_dtype(dtype.as_numpy_dtype)


def _flat(values: np.ndarray, value: pa.DataType) -> pa.Array:
    if value == pa.string():
        texts = [each.decode(errors="replace") for each in values.tolist()]
        return pa.array(texts, value)
    return pa.array(np.ascontiguousarray(values).astype(value.to_pandas_dtype()))
