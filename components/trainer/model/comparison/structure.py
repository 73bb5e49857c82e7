"""Describes the structure of a model, to compare two builds of it.

`build_model` is called in each task of a gang, after a restart, for the export and for
a warm start, and weights are paired by structure. Two builds that differ only in the
order of equal layers have variables of the same shapes: if only shapes were compared,
these layers would exchange weights silently.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.io import gfile

from strategos.components.errors import UserError
from strategos.components.trainer.compat import (
    compiled,
    functional,
    keras3,
    partitioned_variables,
)
from strategos.components.trainer.distribution.environment import ClusterSpec
from strategos.components.trainer.gang.agreement import Agreement

Structure = list[list[str]]
"""`[name, description]` of each input, layer and call of a layer; JSON-able."""

CAUSE = (
    "`build_model` must make the same model each time. Look for a Python set (go "
    "through it by `sorted(…)`), a dict or list in varying order, and for randomness "
    "or the time in `build_model`."
)

_SIZES = re.compile(r"\b\d+(?=[^\[]*\])")  # within brackets
_SHOWN = 60  # characters of a description, from the first difference on


def of(model: tf.keras.Model) -> Structure:
    """Describes a model, independently of the numbers that Keras adds to names.

    Args:
      model: A built model.

    Returns:
      Its inputs by name; its layers at any depth with their own variables; and, of each
      functional model among them, the calls of layers. Names are for messages.
    """
    inputs = keras3.inputs_of(model)
    entries = [
        ["input", f"{name} {_array(inputs[name].dtype, inputs[name].shape[1:])}"]
        for name in sorted(inputs)
    ]
    layers = compiled.layers(model)
    kinds = keras3.classes("layers", "InputLayer")
    entries += [[x.name, _layer(x)] for x in layers if not isinstance(x, kinds)]
    names = {id(functional.tensor(x).layer): name for name, x in inputs.items()}
    return [*entries, *(call for layer in layers for call in _calls(layer, names))]


def write(model: tf.keras.Model, path: str) -> None:
    """Writes the structure of a model beside its weights.

    Args:
      model: A built model.
      path: Prefix of the files with the weights.
    """
    with gfile.GFile(_file(path), "w") as file:
        file.write(json.dumps(of(model)))


def read(path: str) -> Structure | None:
    """Reads the structure of a model beside its weights.

    Args:
      path: Prefix of the files with the weights.

    Returns:
      The structure; None if a version that wrote no structures wrote the weights.
    """
    if not gfile.exists(_file(path)):
        return None
    with gfile.GFile(_file(path)) as file:
        return json.loads(file.read())


def difference(ours: Structure, theirs: Structure | None) -> str:
    """Describes the first difference between two structures; "" if there is none.

    Args:
      ours: The structure of the model here.
      theirs: The structure of the other model; None if unknown: no difference.
    """
    if theirs is None:
        return ""
    for mine, other in zip(ours, theirs, strict=False):
        if mine[1] != other[1]:
            here, there = _from_difference(mine[1], other[1])
            return f"{mine[0]}: {here} here, {there} there"
    more, where = (ours, "here") if len(ours) > len(theirs) else (theirs, "there")
    both = min(len(ours), len(theirs))
    return f"{more[both][0]}: {more[both][1]} only {where}" if more[both:] else ""


def check(ours: Structure, theirs: Structure | None, here: str, there: str) -> None:
    """Rejects two builds of a model that differ.

    Args:
      ours: The structure of the first build.
      theirs: The structure of the second build; None if unknown.
      here: Place or purpose of the first build, for the message, e.g. "for the export".
      there: Place or purpose of the second build.

    Raises:
      UserError: The structures differ.
    """
    differing = difference(ours, theirs)
    if differing:
        raise UserError(
            f"`build_model` built another model {here} ('here') than {there} "
            f"('there'): {differing}. {CAUSE}"
        )


def check_warm_start(model: tf.keras.Model, path: str, *, resized: bool) -> None:
    """Rejects a model that differs from the earlier model of its warm start.

    Args:
      model: The model that `build_model` makes now.
      path: Prefix of the files with the earlier model's weights.
      resized: Whether to ignore sizes: rows of tables were moved, and `warm_start` has
        already compared sizes.

    Raises:
      UserError: The models differ.
    """
    ours, theirs = of(model), read(path)
    if resized:
        ours, theirs = _without_sizes(ours), theirs and _without_sizes(theirs)
    differing = difference(ours, theirs)
    if differing:
        raise UserError(
            f"the weights of {path} ('there') are of another model than `build_model` "
            f"makes now ('here'): {differing}",
            key="trainer.warm_start",
            remedy="Set `warm_start: null` to begin anew, or build the model as it "
            f"was. {CAUSE}",
        )


def check_tasks(
    model: tf.keras.Model, agreement: Agreement, cluster: ClusterSpec
) -> None:
    """Rejects a model that differs between the tasks of a gang; all must call this.

    Args:
      model: The built model of this task.
      agreement: Sums values over the tasks.
      cluster: All tasks, and the task of this process.

    Raises:
      UserError: A task has built another model.
    """
    if agreement.alone:
        return
    text, own = json.dumps(of(model)).encode(), cluster.tasks.index(cluster.task)
    sizes = _exchanged([len(text), *_digest(text)], agreement, own)
    if all(each == sizes[0] for each in sizes):
        return
    longest = int(max(size for size, *_ in sizes))
    texts = _exchanged([*text.ljust(longest)], agreement, own)
    structures = [json.loads(bytes(map(int, each))) for each in texts]
    for task, theirs in zip(cluster.tasks, structures, strict=True):
        check(structures[0], theirs, f"in {cluster.tasks[0].name}", f"in {task.name}")


def _file(path: str) -> str:
    return f"{path}.structure.json"


def _digest(text: bytes) -> Iterator[int]:
    """A hash of `text` as numbers that float64 represents exactly."""
    hashed = hashlib.sha256(text).digest()
    return (int.from_bytes(hashed[i : i + 4], "big") for i in range(0, 16, 4))


def _exchanged(
    values: Sequence[float], agreement: Agreement, own: int
) -> list[tuple[float, ...]]:
    """Gathers the values of all tasks; each task passes equally many."""
    size = len(values)
    places = np.zeros([agreement.workers, size])
    places[own] = values
    summed = agreement.total(*places.ravel())
    return [summed[i : i + size] for i in range(0, len(summed), size)]


def _layer(layer: Any) -> str:
    """Class, function, activation, own variables, e.g. `Dense relu float32[8, 4]`."""
    parts = [type(layer).__name__]
    for attribute in ("symbol", "activation"):  # `symbol`: of tf-keras's TFOpLambda
        value = getattr(layer, attribute, None)
        if value is not None:
            parts.append(str(getattr(value, "__name__", value)))
    parts += [
        _array(table[0].dtype, partitioned_variables.shape(table))
        for table in partitioned_variables.tables(_own_variables(layer))
    ]
    return " ".join(parts)


def _own_variables(layer: Any) -> list[Any]:
    """The variables of a layer itself, without its sublayers and metrics."""
    parts = [*compiled.layers(layer)[1:], *(getattr(layer, "metrics", None) or ())]
    others = {id(variable) for part in parts for variable in compiled.variables(part)}
    return [each for each in compiled.weights(layer) if id(each) not in others]


def _calls(layer: Any, names: Mapping[int, str]) -> Structure:
    """The calls of layers in a functional model, e.g. `Dense(Concatenate#2)`.

    Args:
      layer: A layer or model.
      names: Names of the inputs of the whole model, by the ids of their layers.
    """
    calls: Structure = []
    known: dict[tuple[int, int], str] = {}
    first: dict[int, str] = {}
    for each in functional.calls(layer):
        callee = type(each.layer).__name__
        label = names.get(id(each.layer)) or f"{callee}#{len(known)}"
        known[id(each.layer), each.number] = label
        again = first.setdefault(id(each.layer), label)
        arguments = [
            known[id(x.layer), x.number] + f".{x.place}" * bool(x.place)
            for x in each.inputs
        ]
        if arguments:
            callee = callee if again == label else again
            calls.append([each.layer.name, f"{callee}({', '.join(arguments)})"])
    return calls


def _array(dtype: Any, shape: Any) -> str:
    sizes = ("?" if size is None else str(size) for size in tf.TensorShape(shape))
    return f"{tf.as_dtype(dtype).name}[{', '.join(sizes)}]"


def _without_sizes(structure: Structure) -> Structure:
    return [[name, _SIZES.sub("*", text)] for name, text in structure]


def _from_difference(one: str, other: str) -> tuple[str, str]:
    """Cuts two long texts to the surroundings of their first difference."""
    pairs = enumerate(zip(one, other, strict=False))
    common = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    begin = one.rfind(" ", 0, common) + 1 if common > _SHOWN else 0
    return _cut(one, begin), _cut(other, begin)


def _cut(text: str, begin: int) -> str:
    end = begin + 2 * _SHOWN
    return "… " * bool(begin) + text[begin:end] + " …" * (len(text) > end)
