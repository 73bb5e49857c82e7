"""Variables in files: all that a model has is written, and found when it is read.

TensorFlow finds variables by the attributes of objects (`tf.train.Checkpoint`). It does
not look into the lists and dicts that a Keras 3 layer keeps, nor at Keras 3's random
states: these are written by their index among the variables of the model. So each
variable of the model is compared with the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3, stored_objects
from strategos.components.wording import abridged, quoted

Held = Sequence[tuple[Any, str]]

_KINDS = (tf.Variable, tf.distribute.DistributedValues)


def write(part: Any, path: str) -> None:
    """Writes a part of a training: a model with its optimizers, or something else.

    Args:
      part: What has the variables.
      path: Prefix of the files.

    Raises:
      UserError: A variable of the model, or of a Keras 3 optimizer, is not in the
        files.
    """
    _write(_whole(part), path, _saved(part))


def read(part: Any, path: str, *, is_chief: bool) -> list[str]:
    """Reads what `write` wrote.

    Variables that an optimizer or metric has not created yet are read when they are.

    Args:
      part: Built like the part that was written.
      path: Prefix of the files.
      is_chief: Whether this task's first replica gets the totals of all replicas.

    Returns:
      Names of the variables of a model that the files lack.
    """
    return _read(_whole(part), path, _saved(part), is_chief)


def count(path: str) -> int:
    """How many variables `write` wrote.

    Args:
      path: Prefix of the files.
    """
    names = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    return sum(name.endswith("/.ATTRIBUTES/VARIABLE_VALUE") for name in names)


def add_totals(part: Any, path: str) -> None:
    """Adds written totals of replicas to those that were counted since.

    Args:
      part: Built like the part that was written.
      path: Prefix of the files.
    """
    reader = tf.train.load_checkpoint(path)
    for variables, key in _totals(stored_objects.held(path, _whole(part))):
        variables[0].assign_add(reader.get_tensor(key))


def write_weights(model: tf.keras.Model, path: str) -> None:
    """Writes a model without its optimizers.

    Args:
      model: A built model.
      path: Prefix of the files.

    Raises:
      UserError: A variable of the model is not in the files.
    """
    variables = compiled.variables(model)
    _write(_weights(model, variables), path, variables)


def read_weights(model: tf.keras.Model, path: str) -> list[str]:
    """Reads what `write_weights` wrote.

    Args:
      model: A built model.
      path: Prefix of the files.

    Returns:
      Names of the variables of the model that the files lack.
    """
    variables = compiled.variables(model)
    return _read(_weights(model, variables), path, variables, True)


def set_total(variables: Sequence[tf.Variable], total: Any, is_chief: bool) -> None:
    """Gives one replica the whole of a total that replicas count together.

    TensorFlow divides a total among the replicas, and drops the remainder of an
    integer.

    Args:
      variables: Those of this task's replicas.
      total: The value.
      is_chief: Whether the first replica of this task gets it.
    """
    for number, variable in enumerate(variables):
        variable.assign(total if is_chief and not number else 0 * total)


def held_weights(model: tf.keras.Model, path: str) -> Held:
    """The weights of a model, as files of `write_weights` have them by structure.

    Args:
      model: A built model.
      path: Prefix of the files.

    Returns:
      Pairs of a variable and its key in the files. Random states of a Keras 3 model,
      and objects that are no variables, are left out.
    """
    held = stored_objects.held(path, _weights(model, compiled.weights(model)))
    return [(x, key) for x, key in held if isinstance(keras3.of_tensorflow(x), _KINDS)]


def _saved(part: Any) -> list[Any]:
    """The variables that a checkpoint of `part` must hold; [] if it is no model.

    tf-keras also has some that exist only after the first step.
    """
    found = compiled.variables(part) if keras3.package_of(part) else []
    own = list(part.optimizer.variables) if keras3.is_model(part) else []
    return found + own


def _write(root: tf.train.Checkpoint, path: str, variables: Iterable[Any]) -> None:
    root.write(path)
    missing = _missing(stored_objects.held(path, root), variables)
    if missing:
        raise UserError(
            f"{abridged(quoted(missing), 3)} cannot be saved: not found among the "
            "attributes of the model and its layers. Assign each variable to an "
            "attribute of a layer: `self.NAME = self.add_weight(…)`."
        )


def _read(
    root: tf.train.Checkpoint, path: str, variables: Iterable[Any], is_chief: bool
) -> list[str]:
    # Partial: what does not exist yet is read later, what the files lack is returned.
    root.read(path).expect_partial()
    held = stored_objects.held(path, root)
    _set_totals(held, path, is_chief)
    return _missing(held, variables)


def _missing(held: Held, variables: Iterable[Any]) -> list[str]:
    known = stored_objects.identities(found for found, _ in held)
    return [getattr(x, "path", x.name) for x in variables if id(x) not in known]


def _set_totals(held: Held, path: str, is_chief: bool) -> None:
    """Sets each total that replicas count together."""
    reader = tf.train.load_checkpoint(path)
    for variables, key in _totals(held):
        set_total(variables, reader.get_tensor(key), is_chief)


def _totals(held: Held) -> Iterator[tuple[Sequence[tf.Variable], str]]:
    """The variables of this task's replicas for each total, and its key in a file."""
    here = tf.distribute.get_strategy()
    for found, key in held:
        if keras3.is_total_of_replicas(found):
            yield here.experimental_local_results(keras3.of_tensorflow(found)), key


def _whole(part: Any) -> tf.train.Checkpoint:
    """A part of a training by structure."""
    if keras3.package_of(part) is None:
        return tf.train.Checkpoint(part=part)
    others = {**keras3.random_state(part), **_untracked(part, compiled.variables(part))}
    return tf.train.Checkpoint(part=part, **others)


def _weights(model: tf.keras.Model, variables: Sequence[Any]) -> tf.train.Checkpoint:
    """A model by structure without its optimizers: moments and learning rates."""
    untracked = _untracked(model, variables)
    return tf.train.Checkpoint(model=_without_optimizers(model), **untracked)


def _untracked(model: tf.keras.Model, variables: Sequence[Any]) -> dict[str, Any]:
    """Those of a model's variables that TensorFlow does not find by attributes.

    Returns:
      The argument `untracked` of a Checkpoint, a dict by index; {} if it is empty.
    """
    root = _without_optimizers(model)
    tracked = stored_objects.identities(stored_objects.descendants(root))
    wanted = {*map(id, variables), *map(id, keras3.contained(model))} - tracked
    numbered = enumerate([*compiled.variables(model), *keras3.contained(model)])
    parts = {str(number): part for number, part in numbered if id(part) in wanted}
    return {"untracked": parts} if parts else {}


def _without_optimizers(model: tf.keras.Model) -> tf.train.Checkpoint:
    parts = tf.train.TrackableView.children(model)
    return tf.train.Checkpoint(
        **{name: part for name, part in parts.items() if not keras3.is_optimizer(part)}
    )
