"""Encodes Python values with their types as JSON and arrays: the state of callbacks.

Supports None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, deque,
OrderedDict, defaultdict, Counter, NumPy arrays and scalars, tensors and variables, in
any nesting, e.g. `{"best": [np.float32(0.5)]}`. Any other object is only compared, to
detect changes. Nothing is pickled, so reading a file runs no code.
"""

from __future__ import annotations

import collections
import io
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.trainer.compat import keras3

_PLAIN = (type(None), bool, int, float, str)
_SEQUENCES = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_MAPPINGS = {
    kind.__name__: kind for kind in (dict, collections.OrderedDict, collections.Counter)
}
_FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}
_RANDOM = {
    random.Random: lambda value: value.getstate(),
    np.random.Generator: lambda value: value.bit_generator.state,
    np.random.RandomState: lambda value: value.get_state(legacy=False),
}
_LIBRARIES = ("tensorflow", "tf_keras", "keras", "numpy", "strategos", "builtins")


class Encoded:
    """A value at one moment: compared with `==`, and stored if `is_kept`.

    Args:
      value: Any value; arrays in it are copied.

    Attributes:
      is_kept: Whether `stored` holds the whole value.
      tree: The value as JSON types; an array is its index in `arrays`, its dtype and
        its shape. Not JSON-able unless `is_kept`.
      arrays: The arrays of the value.
    """

    def __init__(self, value: Any):
        self.is_kept = True
        self.arrays: list[np.ndarray] = []
        self._within: set[int] = set()  # ids of values in progress, and of objects
        self.tree = self._encode(value)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Encoded)
            and repr(self.tree) == repr(other.tree)  # NaN equals itself
            and all(map(_same, self.arrays, other.arrays))
        )

    __hash__ = None  # type: ignore[assignment]  # Python's way to say: not hashable

    def stored(self, arrays: dict[str, np.ndarray]) -> Any:
        """The value as JSON.

        Args:
          arrays: Arrays by name; the value's arrays are added. The JSON has their
            names.
        """
        names = [str(len(arrays) + number) for number in range(len(self.arrays))]
        arrays.update(zip(names, self.arrays, strict=True))
        return {"tree": self.tree, "arrays": names}

    def _encode(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if id(value) in self._within:
            return self._object(value, None)
        self._within.add(id(value))
        encoded = self._encode_parts(value)
        if not isinstance(encoded, _Object):
            self._within.discard(id(value))
        return encoded

    def _encode_parts(self, value: Any) -> Any:
        kind = type(value).__name__
        if type(value) is _SEQUENCES.get(kind):
            parts = [self._encode(each) for each in _ordered(value)]
            return parts if type(value) is list else {kind: parts}
        if type(value) is _MAPPINGS.get(kind):
            return {kind: self._pairs(value)}
        if type(value) is bytes:
            return {kind: value.decode("latin-1")}
        if type(value) is collections.deque:
            parts = [self._encode(each) for each in value]
            return {kind: parts, "maxlen": value.maxlen}
        if type(value) is collections.defaultdict:
            factory = getattr(value.default_factory, "__name__", "")
            if value.default_factory is _FACTORIES.get(factory):
                return {kind: self._pairs(value), "factory": factory}
        return self._encode_array(value)

    def _encode_array(self, value: Any) -> Any:
        variable = keras3.of_tensorflow(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array("array" if type(value) is np.ndarray else "item", value)
        if isinstance(variable, tf.Variable):
            return self._array("variable", variable.numpy())
        if isinstance(value, tf.Tensor) and hasattr(value, "numpy"):
            return self._array("tensor", value.numpy())
        return self._object(value, self._content(value))

    def _pairs(self, value: Mapping[Any, Any]) -> list[list[Any]]:
        return [[self._encode(each) for each in pair] for pair in value.items()]

    def _array(self, kind: str, value: Any) -> Any:
        array = np.array(value)
        if array.dtype.hasobject:
            return self._object(value, repr(value))
        name = array.dtype.name
        if array.dtype.kind == "V" and not array.dtype.fields:  # such as bfloat16
            array = array.view(f"u{array.dtype.itemsize}")
        self.arrays.append(array)
        number = len(self.arrays) - 1
        return {kind: number, "dtype": name, "shape": list(array.shape)}

    def _object(self, value: Any, content: Any) -> Any:
        self.is_kept = False
        return _Object(value, content)

    def _content(self, value: Any) -> Any:
        """The content by which changes of an object are detected, besides identity.

        For example, the state of a `random.Random`; attributes of a user's object.
        """
        if type(value) in _RANDOM:
            return self._encode(_RANDOM[type(value)](value))
        if isinstance(value, io.IOBase):
            return None
        if hasattr(value, "__next__"):
            return object()  # equals nothing: nobody can look into an iterator
        if type(value).__module__.partition(".")[0] in _LIBRARIES:
            return None
        return self._pairs(getattr(value, "__dict__", {}))


def decoded(
    stored: Mapping[str, Any], arrays: Mapping[str, np.ndarray], current: Any
) -> Any:
    """Decodes a result of `Encoded.stored`.

    Args:
      stored: The JSON.
      arrays: The arrays of all values, by name.
      current: The value to be replaced; variables in it are assigned and reused.
    """
    values = [arrays[name] for name in stored["arrays"]]
    return _decode(stored["tree"], values, current)


def _decode(tree: Any, arrays: list[np.ndarray], current: Any) -> Any:
    if not isinstance(tree, (list, dict)):
        return tree
    tagged: dict[str, Any] = tree if type(tree) is dict else {"list": tree}
    (kind, parts), *others = tagged.items()
    rest = dict(others)
    if kind in _SEQUENCES or kind == "deque":
        held = list(current) if isinstance(current, (list, tuple)) else []
        held += [None] * (len(parts) - len(held))
        values = [_decode(x, arrays, y) for x, y in zip(parts, held, strict=False)]
        made = _SEQUENCES.get(kind)
        return made(values) if made else collections.deque(values, rest["maxlen"])
    if kind == "bytes":
        return parts.encode("latin-1")
    if "dtype" in rest:
        return _placed(kind, _typed(arrays[parts], rest["dtype"]), current)
    known = current if isinstance(current, Mapping) else {}
    entries = {}
    for key, value in parts:
        key = _decode(key, arrays, None)
        entries[key] = _decode(value, arrays, known.get(key))
    if kind == "defaultdict":
        return collections.defaultdict(_FACTORIES.get(rest["factory"]), entries)
    return _MAPPINGS[kind](entries)


def _typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """Restores a dtype that NumPy's files do not support, e.g. bfloat16.

    Args:
      array: The array as stored.
      dtype: Name of the original dtype.
    """
    is_known = array.dtype.name == dtype or array.dtype.fields
    return array if is_known else array.view(tf.as_dtype(dtype).as_numpy_dtype)


def _placed(kind: str, array: np.ndarray, current: Any) -> Any:
    if kind == "array":
        return array
    if kind == "item":
        return array[()]
    if kind == "tensor":
        return tf.constant(array)
    variable = keras3.of_tensorflow(current)
    if not isinstance(variable, tf.Variable):
        return tf.Variable(array)
    variable.assign(array)
    return current


def _ordered(values: Any) -> Any:
    """The items of a sequence, or of a set in a deterministic order."""
    return sorted(values, key=repr) if isinstance(values, (set, frozenset)) else values


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()


class _Object:
    """An object that is only compared: by its identity and content."""

    def __init__(self, value: Any, content: Any):
        self._value = value  # held, so that no other object gets its identity
        self._content = content

    def __repr__(self) -> str:
        return f"<{id(self._value)} {self._content!r}>"
