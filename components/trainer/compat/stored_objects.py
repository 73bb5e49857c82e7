"""Finds the objects of a program that a file of `tf.train.Checkpoint` has values of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


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
        owns = hasattr(each, "_delete_tracking")  # is no container
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
