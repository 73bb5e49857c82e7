"""The values of `tf.train.Checkpoint`: taken at once and written later, and their keys.

Files are those of `tf.train.Checkpoint.write`, which reads all values and writes them
before it returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util.object_identity import ObjectIdentityDictionary


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The values of all objects below a root, as they were when it was taken.

    On a CPU, tensors share the memory of their variables until these change; TensorFlow
    then gives the variable new memory.

    Attributes:
      values: Tensors in the memory of this host, by key and slice specification.
      held: The objects that have values, each with its key.
    """

    values: Mapping[tuple[str, str], tf.Tensor]
    held: Sequence[tuple[Any, str]]

    def write(self, path: str) -> None:
        """Writes files that `tf.train.Checkpoint.read` reads; from any thread.

        Args:
          path: Prefix of the files.

        Raises:
          tf.errors.OpError: The files cannot be written.
        """
        keys, slices = zip(*self.values, strict=True)
        with _on_this_host():
            tf.raw_ops.SaveV2(
                prefix=path,
                tensor_names=list(keys),
                shape_and_slices=list(slices),
                tensors=list(self.values.values()),
            )


def snapshot(
    root: tf.train.Checkpoint,
    known: Callable[[Sequence[Any]], Iterable[tuple[Any, tf.Tensor]]] = lambda _: (),
) -> Snapshot:
    """Takes the values of all objects below `root`.

    Under several workers all of them call this: reading a variable may be a collective.

    Args:
      root: The objects, by structure.
      known: Called with the objects; returns pairs of a variable among them and its
        value, which is then not read. Default: none are known.
    """
    saver = root._saver
    objects, _ = saver._graph_view.breadth_first_traversal()
    in_place_of = ObjectIdentityDictionary()
    for variable, value in known(objects):
        in_place_of[variable] = _Known(value)
    saver._object_map = in_place_of
    tensors, _, registered, graph = saver._gather_serialized_tensors()
    if registered:
        raise NotImplementedError(f"no snapshot of objects with {list(registered)}")
    values = {}
    for by_key in tensors.values():
        for key, by_slice in by_key.items():
            slices = by_slice if isinstance(by_slice, dict) else {"": by_slice}
            for part, source in slices.items():
                if (value := _value(source)) is not None:
                    values[key, part.strip()] = value
    # The slots of a legacy optimizer are further nodes, after those of `objects`.
    pairs = zip(objects, graph.nodes[: len(objects)], strict=True)
    held = [(x, n.attributes[0].checkpoint_key) for x, n in pairs if n.attributes]
    return Snapshot(values, held)


class _Known(tf.__internal__.tracking.AutoTrackable):
    """Stands for a variable with a known value.

    Args:
      value: The value.
    """

    def __init__(self, value: tf.Tensor):
        self._value = value

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {"VARIABLE_VALUE": self._value}


def _value(source: Any) -> tf.Tensor | None:
    """The value of a tensor, variable or `SaveSpec`, in the memory of this host.

    Returns:
      None: the object has a place in the file, but no value.
    """
    from tensorflow.python.training.saving.saveable_object import SaveSpec

    if not isinstance(source, SaveSpec):
        source = SaveSpec(source, "", "", source.dtype, source.device)
    with tf.device(source.device):
        value = source.tensor
    if value is None:
        return None
    with _on_this_host():
        return tf.identity(value)


@contextlib.contextmanager
def _on_this_host() -> Iterator[None]:
    # Without the job, a block around the call that names another host would hold.
    with tf.device(None), tf.device("/CPU:0"):
        yield


def held(path: str, root: tf.train.Checkpoint) -> list[tuple[Any, str]]:
    """The objects below `root` that a file has values of, each with its key there.

    Args:
      path: Prefix of the files.
      root: The objects, by structure.
    """
    view = tf.train.CheckpointView(path)
    nodes = view._object_graph_proto.nodes
    return [
        (variable, nodes[number].attributes[0].checkpoint_key)
        for number, variable in view.match(root).items()
        if nodes[number].attributes
    ]


def descendants(root: tf.train.Checkpoint) -> list[Any]:
    """The objects below `root` that a file of `root` would hold.

    TensorFlow cannot save a dict with keys that are not text, e.g. `{1: layer}`, nor a
    list that was changed otherwise than at its end. The owner stops tracking such a
    container; Keras still finds its layers and variables.

    Args:
      root: The objects, by structure; owners of such containers are changed.
    """
    by_id, todo = {id(root): root}, [(root, root, "")]
    for each, owner, name in todo:
        try:
            parts = tf.train.TrackableView.children(each)
        except ValueError:
            owner._delete_tracking(name)
            return descendants(root)
        # Is no container. A variable of several replicas would read its value here.
        owns = hasattr(type(each), "_delete_tracking")
        for key, part in parts.items():
            if id(part) not in by_id:
                by_id[id(part)] = part
                todo.append((part, each, key) if owns else (part, owner, name))
    return list(by_id.values())


def identities(objects: Iterable[Any]) -> set[int]:
    """The `id` of each object, and of each part of a variable that is split."""
    from tensorflow.python.distribute.sharded_variable import ShardedVariableMixin

    ids = set()
    for each in objects:
        parts = each.variables if isinstance(each, ShardedVariableMixin) else ()
        ids |= {id(each), *map(id, parts)}
    return ids
