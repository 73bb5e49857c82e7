"""Takes all variables of a model, writes them to files, and reads them.

TensorFlow finds variables by the attributes of objects (`tf.train.Checkpoint`). It
misses lists and dicts of a Keras 3 layer, and Keras 3's random states: these are
written by their index among the variables of the model. Each variable of the model is
looked up among those written and read, so that none is lost silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.errors import UserError
from strategos.components.trainer.compat import compiled, keras3, stored_objects
from strategos.components.trainer.gang.agreement import Agreement
from strategos.components.wording import abridged, quoted

Held = Sequence[tuple[Any, str]]

_KINDS = (tf.Variable, tf.distribute.DistributedValues)


def taken(part: Any) -> stored_objects.Snapshot:
    """The values of a part of a training, e.g. a model with its optimizers, or metrics.

    All workers call this: reading a variable may be a collective.

    Args:
      part: A model, or any trackable object with variables.

    Returns:
      The present values; later changes of the variables do not change them.

    Raises:
      UserError: A variable of the model, or of a Keras 3 optimizer, would not be in the
        files.
    """
    return _taken(_whole(part), _saved(part))


def is_exchanged(part: Any) -> bool:
    """Whether replicas have values of their own of a variable: reading is a collective.

    Args:
      part: See `taken`.
    """
    parts = map(keras3.of_tensorflow, stored_objects.descendants(_whole(part)))
    on_read = tf.VariableSynchronization.ON_READ
    return any(getattr(x, "synchronization", None) == on_read for x in parts)


def read(part: Any, path: str, *, is_chief: bool = True) -> list[str]:
    """Reads files that `taken(part).write` wrote.

    Variables that an optimizer or metric has not created yet are read on creation.

    Args:
      part: A part built like the written one.
      path: Prefix of the files.
      is_chief: Whether this task's first replica gets the totals of all replicas.

    Returns:
      Names of the model's variables that the files lack.
    """
    return _read(_whole(part), path, _saved(part), is_chief)


def count(path: str) -> int:
    """Counts the variables in files that `taken(part).write` wrote.

    Args:
      path: Prefix of the files.
    """
    names = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    return sum(name.endswith("/.ATTRIBUTES/VARIABLE_VALUE") for name in names)


def add_totals(part: Any, path: str) -> None:
    """Adds the written totals of replicas to the present ones.

    Args:
      part: A part built like the written one.
      path: Prefix of the files.
    """
    reader = tf.train.load_checkpoint(path)
    for variable, key in _totals(stored_objects.held(path, _whole(part))):
        _here(variable)[0].assign_add(reader.get_tensor(key))


def write_weights(model: tf.keras.Model, path: str) -> None:
    """Writes a model without its optimizers.

    Args:
      model: A built model.
      path: Prefix of the files.

    Raises:
      UserError: A variable of the model is not in the files.
    """
    variables = compiled.variables(model)
    _taken(_weights(model, variables), variables).write(path)


def read_weights(model: tf.keras.Model, path: str) -> list[str]:
    """Reads files of `write_weights`.

    Args:
      model: A built model.
      path: Prefix of the files.

    Returns:
      Names of the model's variables that the files lack.
    """
    variables = compiled.variables(model)
    return _read(_weights(model, variables), path, variables, True)


def set_total(variables: Sequence[tf.Variable], total: Any, is_chief: bool) -> None:
    """Assigns a total summed over replicas to the first replica, 0 to the others.

    TensorFlow would divide the total among the replicas, and drop the remainder of an
    integer.

    Args:
      variables: The local variables of this task's replicas.
      total: The value summed over all replicas.
      is_chief: Whether this task's first replica gets the total.
    """
    for number, variable in enumerate(variables):
        variable.assign(total if is_chief and not number else 0 * total)


def held_weights(model: tf.keras.Model, path: str) -> Held:
    """Pairs the weights of a model with keys in files of `write_weights`.

    Args:
      model: A built model.
      path: Prefix of the files.

    Returns:
      Pairs of a variable and its key in the files, by structure. Random states of a
      Keras 3 model, and objects that are no variables, are left out.
    """
    held = stored_objects.held(path, _weights(model, compiled.weights(model)))
    return [(x, key) for x, key in held if isinstance(keras3.of_tensorflow(x), _KINDS)]


def _saved(part: Any) -> list[Any]:
    """The variables that a checkpoint of `part` must hold; [] unless it is a model.

    Optimizers of tf-keras are left out: some of their variables exist only after the
    first step.
    """
    variables_of = compiled.variables(part) if keras3.package_of(part) else []
    own = list(part.optimizer.variables) if keras3.is_model(part) else []
    return variables_of + own


def _taken(
    root: tf.train.Checkpoint, variables: Iterable[Any]
) -> stored_objects.Snapshot:
    values = stored_objects.snapshot(root, _present_totals)
    missing = _missing(values.held, variables)
    if missing:
        raise UserError(
            f"{abridged(quoted(missing), 3)} cannot be saved: not found among the "
            "attributes of the model and its layers. Assign each variable to an "
            "attribute of a layer: `self.NAME = self.add_weight(…)`."
        )
    return values


def _read(
    root: tf.train.Checkpoint, path: str, variables: Iterable[Any], is_chief: bool
) -> list[str]:
    # Partial: variables are read once they exist; those missing in the files returned.
    root.read(path).expect_partial()
    held = stored_objects.held(path, root)
    _set_totals(held, path, is_chief)
    return _missing(held, variables)


def _missing(held: Held, variables: Iterable[Any]) -> list[str]:
    known = stored_objects.identities(variable for variable, _ in held)
    return [getattr(x, "path", x.name) for x in variables if id(x) not in known]


def _set_totals(held: Held, path: str, is_chief: bool) -> None:
    """Sets each variable that replicas sum, see `set_total`."""
    reader = tf.train.load_checkpoint(path)
    for variable, key in _totals(held):
        set_total(_here(variable), reader.get_tensor(key), is_chief)


def _totals(held: Held) -> Iterator[tuple[Any, str]]:
    """The variables that replicas sum, each with its key in a file."""
    return ((x, key) for x, key in held if keras3.is_total_of_replicas(x))


def _here(variable: Any) -> Sequence[tf.Variable]:
    """The variables of this task's replicas."""
    strategy = tf.distribute.get_strategy()
    return strategy.experimental_local_results(keras3.of_tensorflow(variable))


def _present_totals(objects: Iterable[Any]) -> Iterator[tuple[Any, tf.Tensor]]:
    """The totals over all replicas, which all workers exchange at once.

    TensorFlow would exchange one variable after the other, twice. It does so with types
    that float64 does not hold.

    Args:
      objects: Objects, variables that replicas sum among them.

    Returns:
      Pairs of such a variable and its total.
    """
    totals = list(filter(_is_exact_total, objects))
    if not totals:
        return iter(())
    here = [_sum(_here(each)) for each in totals]
    sums = _agreement().sums(np.concatenate([x.ravel() for x in here]))
    parts = np.split(sums, np.cumsum([each.size for each in here])[:-1])
    return (
        (variable, tf.constant(part.reshape(value.shape), variable.dtype))
        for variable, value, part in zip(totals, here, parts, strict=True)
    )


def _is_exact_total(part: Any) -> bool:
    """Whether `part` is a total of numbers that float64 holds."""
    if not keras3.is_total_of_replicas(part):
        return False
    kind = tf.as_dtype(part.dtype)
    return kind.is_floating or (kind.is_integer and kind.size <= 4)


def _agreement() -> Agreement:
    strategy = tf.distribute.get_strategy()
    workers, replicas = 1, strategy.num_replicas_in_sync
    if replicas > 1:  # the default strategy lists no devices
        workers = replicas // len(strategy.extended.worker_devices)
    return Agreement(strategy, workers)


def _sum(variables: Iterable[tf.Variable]) -> np.ndarray:
    return np.sum([np.asarray(each, np.float64) for each in variables], axis=0)


def _whole(part: Any) -> tf.train.Checkpoint:
    """A Checkpoint of a part, including variables that TensorFlow does not track."""
    if keras3.package_of(part) is None:
        return tf.train.Checkpoint(part=part)
    others = {**keras3.random_state(part), **_untracked(part, compiled.variables(part))}
    return tf.train.Checkpoint(part=part, **others)


def _weights(model: tf.keras.Model, variables: Sequence[Any]) -> tf.train.Checkpoint:
    """A Checkpoint of a model without optimizers, i.e. moments and learning rates."""
    untracked = _untracked(model, variables)
    return tf.train.Checkpoint(model=_without_optimizers(model), **untracked)


def _untracked(model: tf.keras.Model, variables: Sequence[Any]) -> dict[str, Any]:
    """The variables of a model that TensorFlow does not find by attributes.

    Returns:
      The argument `untracked` of a Checkpoint, a dict by index; {} if none are missed.
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
