"""Which entry of a vocabulary has which id in a transformed feature, by value.

The ids are computed by the graph of Transform itself, from the keys of a look-up on:
they are right whatever arithmetic follows, such as `+ 1` or buckets for unknown keys.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Prune = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Callable[..., Any]]
"""The part of a graph between fed and fetched tensors; raises ValueError if the fetched
ones need others, too."""

LOOKUP = "LookupTableFindV2"

_UNKNOWN_KEYS = 2048  # enough to meet the first and the last of some hundred buckets
_MOST_NUMBERS = 1 << 24  # in a chunk of one-hot vectors
_OF_NO_MEANING = frozenset({"_output_shapes", "container", "shared_name", "_class"})


def _no_ids() -> np.ndarray:
    return np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class FeatureIds:
    """The meaning of a transformed feature's values.

    Attributes:
      digest: Hash of the part of the graph that computes the feature, with the contents
        of its vocabularies and the results of its analyzers.
      looks_up: Whether the feature is computed by a look-up.
      entries: Keys of the vocabulary, object[n] of bytes or int64[n]; None if no
        entries can be assigned to values.
      ids: For each entry its value or, of a one-hot vector, the place of its 1;
        int64[n], empty without `entries`.
      others: Ids of keys that are not in the vocabulary, ascending; int64[m], empty
        without `entries`.
      is_one_hot: Whether the feature is a one-hot vector.
      is_discrete: Whether the values are whole numbers, truth values or text.
      varies: Whether other data may change the meaning: the feature depends on a
        vocabulary, or on another result of an analyzer.
    """

    digest: str
    looks_up: bool = False
    entries: np.ndarray | None = None
    ids: np.ndarray = dataclasses.field(default_factory=_no_ids)
    others: np.ndarray = dataclasses.field(default_factory=_no_ids)
    is_one_hot: bool = False
    is_discrete: bool = True
    varies: bool = True


def of(
    output: Sequence[tf.Tensor],
    values: tf.Tensor,
    digests: Digests,
    prune: Prune,
) -> FeatureIds:
    """Finds the meaning of one transformed feature.

    Args:
      output: The feature's tensors in the graph: one, or the components of a sparse or
        ragged tensor.
      values: The tensor in `output` that holds the values.
      digests: Digests of the graph.
      prune: Cuts parts out of the graph.
    """
    text = "".join(digests.of(tensor) for tensor in output)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    lookups, is_discrete = list(lookups_of(values)), not values.dtype.is_floating
    for lookup in lookups:
        assigned = _assigned(lookup, values, digests, prune)
        if assigned is not None:
            return FeatureIds(digest, True, *assigned, is_discrete=is_discrete)
    varies = any(map(digests.varies, output))
    return FeatureIds(digest, bool(lookups), is_discrete=is_discrete, varies=varies)


def lookups_of(tensor: tf.Tensor) -> Iterator[tf.Operation]:
    """The look-ups that a tensor is computed by, the nearest first."""
    todo, seen = [tensor.op], {tensor.op}
    while todo:
        op = todo.pop(0)
        if op.type == LOOKUP:
            yield op
        new = [each.op for each in op.inputs if each.op not in seen]
        seen.update(new)
        todo += new


def without_copies(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor that an output of a function copies.

    The copies of one function wait for all its look-ups, whatever they depend on.
    """
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def content(table: tf.Tensor, keys: Any, values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of a look-up's table.

    Args:
      table: The table's resource, an eager tensor.
      keys: Dtype of the keys.
      values: Dtype of the values.
    """
    exported = tf.raw_ops.LookupTableExportV2(
        table_handle=table, Tkeys=keys, Tvalues=values
    )
    return exported[0].numpy(), exported[1].numpy()


def unknown_keys(entries: np.ndarray) -> np.ndarray:
    """Keys that are not among `entries`, as different as possible."""
    if entries.dtype == object:
        known = set(entries.tolist())
        made = (f"\x01{number * 7919}".encode() for number in range(_UNKNOWN_KEYS))
        return np.array([key for key in made if key not in known], object)
    begin = int(entries.max()) + 1
    if begin > tf.int64.max - _UNKNOWN_KEYS:
        begin = int(entries.min()) - _UNKNOWN_KEYS
    return np.arange(begin, begin + _UNKNOWN_KEYS, dtype=np.int64)


class Digests:
    """Hashes of the tensors of a graph: equal for equal computations.

    Args:
      graph: A graph of a function.
      inputs: Names for its placeholders, by the names of their operations.
    """

    def __init__(self, graph: Any, inputs: Mapping[str, str]):
        self._captured = {id(inner): outer for outer, inner in graph.captures}
        counts: Counter[str] = Counter()
        self._inputs: dict[str, str] = {}
        for operation, name in inputs.items():  # the components of a tensor in order
            self._inputs[operation] = f"{name} {counts[name]}"
            counts[name] += 1
        self._functions = _functions(graph)
        self._by_op: dict[str, str] = {}
        self._varying: set[str] = set()
        for op in graph.get_operations():  # each after those that it depends on
            self._by_op[op.name] = self._of_op(op)
            captured = op.type == "Placeholder" and op.name not in self._inputs
            if captured or any(x.op.name in self._varying for x in op.inputs):
                self._varying.add(op.name)

    def captured(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """The eager tensor that a tensor of the graph stands for, if any."""
        return self._captured.get(id(tensor))

    def varies(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor depends on captured variables or tables of the graph."""
        return tensor.op.name in self._varying

    def of(self, tensor: tf.Tensor) -> str:
        """The hash of one tensor."""
        return f"{self._by_op[tensor.op.name]}:{tensor.value_index}"

    def _of_op(self, op: tf.Operation) -> str:
        if op.name in self._inputs:
            return f"input {self._inputs[op.name]}"
        if op.type == "Placeholder":
            captured = [self._captured.get(id(x)) for x in op.outputs]
            return _hash(map(self._of_captured, captured, op.outputs))
        attributes = op.node_def.attr
        parts = [op.type]
        for name in sorted(set(attributes) - _OF_NO_MEANING):
            text = _text_of(attributes[name], lambda x: self._functions.get(x, ""))
            parts += [name, text]
        parts += [
            f"{self._by_op.get(x.op.name, 'loop')}:{x.value_index}" for x in op.inputs
        ]
        return _hash(parts)

    def _of_captured(self, value: Any, tensor: tf.Tensor) -> str:
        if value is None:
            return "unknown"
        if value.dtype != tf.resource:
            return f"{value.dtype.name} {value.shape} {np.asarray(value).tolist()}"
        users = [op for op in tensor.consumers() if op.type == LOOKUP]
        if not users:
            return "resource"
        kinds = [users[0].get_attr(name) for name in ("Tin", "Tout")]
        return hash_of_table(*content(value, *kinds))


def _assigned(
    lookup: tf.Operation, values: tf.Tensor, digests: Digests, prune: Prune
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool] | None:
    """Entries, their ids, ids of other keys, and whether ids are one-hot.

    None if the feature's values depend on anything but this look-up's keys.
    """
    table = digests.captured(lookup.inputs[0])
    if table is None:
        return None
    kinds = [lookup.get_attr(name) for name in ("Tin", "Tout")]
    entries, _ = content(table, *kinds)
    keys = lookup.inputs[1]
    rank = keys.shape.rank
    if rank is None or not len(entries):
        return None
    try:
        ids_of = prune([keys], [values])
    except ValueError:  # needs other inputs
        return None
    shape = [-1] + [1] * (rank - 1)

    def computed(keys_of_batch: np.ndarray) -> tuple[np.ndarray, bool] | None:
        fed = tf.constant(keys_of_batch, keys.dtype)
        return _as_ids(
            ids_of(tf.reshape(fed, shape if rank else [-1]))[0], len(keys_of_batch)
        )

    try:
        assigned = _in_chunks(computed, entries, values.shape)
        others = _in_chunks(computed, unknown_keys(entries), values.shape)
    except (tf.errors.OpError, ValueError):
        return None
    if assigned is None or assigned[0].min() < (0 if assigned[1] else tf.int64.min):
        return None
    ids, is_one_hot = assigned
    unknown = others[0] if others is not None else np.zeros(0, np.int64)
    return entries, ids, _completed(ids, unknown, is_one_hot), is_one_hot


def _in_chunks(
    computed: Callable[[np.ndarray], Any], keys: np.ndarray, shape: tf.TensorShape
) -> tuple[np.ndarray, bool] | None:
    """The ids of many keys, without a matrix of all one-hot vectors."""
    width = shape[-1] if shape.rank and shape.rank > 1 else 1
    size = max(1, _MOST_NUMBERS // (width or 1 << 12))
    parts = [computed(keys[i : i + size]) for i in range(0, len(keys), size)]
    if not parts or any(part is None for part in parts):
        return None
    if len({part[1] for part in parts}) > 1:
        return None
    return np.concatenate([part[0] for part in parts]), parts[0][1]


def _as_ids(values: tf.Tensor, rows: int) -> tuple[np.ndarray, bool] | None:
    """Values `[rows]` or `[rows, 1]` as ids, or one-hot vectors `[rows, width]`.

    In a one-hot vector, a row of zeros has the id -1.
    """
    array = values.numpy()
    if array.dtype == object or array.shape[:1] != (rows,):
        return None
    array = array.reshape(rows, -1)
    if array.shape[1] == 1:
        whole = array[:, 0].astype(np.int64)
        return (whole, False) if (whole == array[:, 0]).all() else None
    marked = array != 0
    counts = marked.sum(1)
    if (counts > 1).any() or not (array[marked] == array.max()).all():
        return None
    return np.where(counts > 0, marked.argmax(1), -1).astype(np.int64), True


def _completed(ids: np.ndarray, unknown: np.ndarray, is_one_hot: bool) -> np.ndarray:
    """The ids of unknown keys, including ids between them that no sample has met."""
    unknown_ids = set(unknown.tolist()) - ({-1} if is_one_hot else set())
    above = {each for each in unknown_ids if each > ids.max()}
    if above:
        unknown_ids |= set(range(min(above), max(above)))
    return np.array(sorted(unknown_ids - set(ids.tolist())), np.int64)


def _functions(graph: Any) -> dict[str, str]:
    """Hashes of the functions that a graph's operations call, by name."""
    library = {f.signature.name: f for f in graph.as_graph_def().library.function}
    hashes: dict[str, str] = {}

    def hash_of(name: str) -> str:
        if name not in library:
            return ""
        if name not in hashes:
            hashes[name] = "itself"  # where a function calls itself
            hashes[name] = _hash(_parts_of(library[name], hash_of))
        return hashes[name]

    return {name: hash_of(name) for name in library}


def _parts_of(function: Any, hash_of: Callable[[str], str]) -> Iterator[str]:
    """The operations of a function, without the names that tracing gives.

    Args:
      function: A `FunctionDef`.
      hash_of: Returns the hash of a function that it calls, by name.
    """
    names = (each.name for each in function.signature.input_arg)
    places = {name: f"argument {place}" for place, name in enumerate(names)}
    places |= {
        node.name: f"node {place}" for place, node in enumerate(function.node_def)
    }

    def wired(source: str) -> str:
        name, *output = source.removeprefix("^").split(":")
        return ":".join([source[:1] * source.startswith("^") + places[name], *output])

    for node in function.node_def:
        yield node.op
        for name in sorted(set(node.attr) - _OF_NO_MEANING):
            yield f"{name} {_text_of(node.attr[name], hash_of)}"
        yield from map(wired, node.input)
    for result in function.signature.output_arg:
        yield wired(function.ret[result.name])


def _text_of(value: Any, hash_of: Callable[[str], str]) -> str:
    """An attribute; functions by their hashes, because tracing numbers their names."""
    called = [value.func] if value.HasField("func") else value.list.func
    text: str = value.SerializeToString(deterministic=True).hex()
    return " ".join(hash_of(each.name) for each in called) or text


def _hash(parts: Any) -> str:
    text = "\n".join(map(str, parts))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_of_table(keys: np.ndarray, values: np.ndarray) -> str:
    """A hash that does not depend on the order in which a table is exported."""
    texts = [
        x if x.dtype == object else tf.strings.as_string(x) for x in (keys, values)
    ]
    lines = tf.strings.join(texts, "\t")
    parts = [
        tf.reduce_sum(tf.strings.to_hash_bucket_strong(lines, 1 << 62, key=[seed, 1]))
        for seed in (1, 2)
    ]
    return f"table {len(keys)} {[int(x) for x in parts]}"
