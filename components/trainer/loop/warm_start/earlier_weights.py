"""Starts a model from the weights of an earlier model.

Variables are paired by the names that the user gave to layers, the others by structure.
Rows that belong to values of a feature, e.g. of an embedding, move with the entries of
the vocabulary. A table with rows that cannot be assigned starts fresh, with a warning.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components import events
from strategos.components.errors import UserError
from strategos.components.targets.label import Label
from strategos.components.trainer.compat import compiled, keras3, partitioned_variables
from strategos.components.trainer.loop.state import saved_weights, stored_variables
from strategos.components.trainer.loop.state.saved_weights import Described, shown
from strategos.components.trainer.loop.warm_start import layer_names
from strategos.components.trainer.model.tables import moves, record
from strategos.components.trainer.model.tables.moves import Move
from strategos.components.trainer.model.tables.relations import Relation, Tables
from strategos.components.transformed.feature_ids import FeatureIds
from strategos.components.wording import abridged, choices, first, quoted


@dataclasses.dataclass(frozen=True)
class _Start:
    """The initial value of one table of the model.

    Attributes:
      key: Key of the earlier table in the files; None to start fresh.
      move: New places of the rows; None if all rows keep their places.
      reason: Reason for starting fresh; "" without one.
    """

    key: str | None
    move: Move | None = None
    reason: str = ""


def read(
    model: tf.keras.Model,
    path: str,
    tables: Tables | None = None,
    *,
    is_chief: bool = True,
) -> set[int]:
    """Reads the weights of an earlier model; optimizer and seeds keep their state.

    Args:
      model: A built model.
      path: Prefix of the earlier model's files, see `saved_weights.write`.
      tables: The meaning of the rows of the model's tables; None if unknown.
      is_chief: Whether this task's first replica gets the totals of all replicas.

    Returns:
      Indices of tables that may differ in size from the earlier model's.

    Raises:
      UserError: The weights do not fit the model, or do not exist, or predict the
        columns of the label in another order.
    """
    ours, theirs = saved_weights.shapes(model), _descriptions(path)
    held = stored_variables.held_weights(model, path)
    groups = partitioned_variables.tables_of(model)
    index = partitioned_variables.indices(groups)
    by_structure = {index[id(x)]: key for x, key in held if id(x) in index}
    keys = _keys(theirs, by_structure)
    pairing = layer_names.paired(model, ours, theirs, _places(by_structure, keys), path)
    earlier = record.read(path) if tables else None
    if earlier and tables:
        _check_order(earlier.label, tables.label)
    weights = {index[id(part)] for part in compiled.weights(model)}
    starts = {
        i: _start(i, pairing.get(i), keys, tables, earlier, (ours, theirs))
        for i in sorted(weights)
    }
    _check(starts, pairing, ours, theirs, path)
    reader = tf.train.load_checkpoint(path)
    for i, start in starts.items():
        if start.key is not None:
            _assign(groups[i], start, reader.get_tensor(start.key), is_chief)
    # The state of metrics and layers; its size may depend on a vocabulary's.
    shapes = reader.get_variable_to_shape_map()
    for variable, key in held:
        size = tf.TensorShape(variable.shape).as_list()
        if id(variable) not in index and shapes[key] == size:
            _assign([variable], _Start(key), reader.get_tensor(key), is_chief)
    _report(starts, ours)
    return {i for i, x in starts.items() if x.move or x.reason}


def _check_order(earlier: str, label: str) -> None:
    """Rejects weights with outputs for other columns, or in another order."""
    theirs, ours = Label.of(earlier), Label.of(label)
    for head, learnt in theirs.heads.items():
        if head in ours.heads and learnt != ours.heads[head]:
            raise UserError(
                f"the output `{head}` of the weights to start from predicts "
                f"`{learnt.name}`, and `label` names `{ours.heads[head].name}`",
                key="trainer.warm_start",
                remedy="Name that column, or set `warm_start: null` to begin anew.",
            )
    if theirs != ours and theirs.is_several and ours.is_several:
        raise UserError(
            f"the weights to start from predict the columns {choices(theirs.columns)}, "
            f"and `label` names {choices(ours.columns)}: each column would start from "
            "the weights of another",
            key="trainer.warm_start",
            remedy="Name the columns in that order, or set `warm_start: null` to begin "
            "anew.",
        )


def _descriptions(path: str) -> list[list[Any]]:
    try:
        return saved_weights.descriptions(path)
    except tf.errors.NotFoundError:
        raise UserError(
            f"{path}.json does not exist: the weights to start from are gone",
            key="trainer.warm_start",
            remedy="Name the folder of another model, or set `warm_start: null` to "
            "begin anew.",
        ) from None


def _keys(
    theirs: Sequence[Described], by_structure: Mapping[int, str]
) -> list[str | None]:
    """The key of each earlier table; older files have tables in the same order."""
    return [
        described[3] if len(described) > 3 else by_structure.get(i)
        for i, described in enumerate(theirs)
    ]


def _places(
    by_structure: Mapping[int, str], keys: Sequence[str | None]
) -> dict[int, int]:
    """Indices of earlier tables by index of a table, paired by structure."""
    place = {key: i for i, key in enumerate(keys) if key is not None}
    return {i: place[key] for i, key in by_structure.items() if key in place}


def _start(
    index: int,
    then: int | None,
    keys: Sequence[str | None],
    tables: Tables | None,
    earlier: Tables | None,
    described: tuple[Sequence[Described], Sequence[Described]],
) -> _Start:
    """Decides how a table starts.

    Args:
      index: Index of the table.
      then: Index of the paired earlier table; None without one.
      keys: Keys of the earlier tables.
      tables: The meaning of rows now.
      earlier: The meaning of rows in the earlier model; None if it was not written.
      described: Descriptions of the model's tables, and of the tables in the files.
    """
    key = None if then is None else keys[then]
    own = tables.relations[index] if tables else ()
    if then is None or not tables or (earlier is None and not own):
        return _Start(key)
    if earlier is None:
        varying = [x for x in own if _varies(tables.ids.get(x.source))]
        return _Start(None, reason=_unrecorded(varying)) if varying else _Start(key)
    own, before = moves.comparable(index, then, tables, earlier)
    differing = [
        x.source
        for x in {*own, *before}
        if moves.changed(tables.ids.get(x.source), earlier.ids.get(x.source))
    ]
    if not differing and own == before:
        return _Start(key)
    sizes = described[0][index][1], described[1][then][1]
    move = moves.find(own, before, tables.ids, earlier.ids, sizes)
    if move is None:
        return _Start(None, reason=_unassigned(differing or [x.source for x in own]))
    return _Start(key, move)


def _varies(ids: FeatureIds | None) -> bool:
    return ids is None or ids.varies


def _unrecorded(own: Sequence[Relation]) -> str:
    names = abridged(quoted(sorted({x.source for x in own})), 3)
    return (
        f"the earlier model was written by a version that kept no vocabularies, so its "
        f"rows cannot be assigned to the values of {names}"
    )


def _unassigned(sources: Sequence[str]) -> str:
    names = abridged(quoted(sorted(set(sources))), 3)
    return (
        f"the values of {names} mean something else than they did (vocabulary, "
        "boundaries or `preprocessing_fn` differ), and its rows cannot be assigned to "
        "them"
    )


def _check(
    starts: Mapping[int, _Start],
    pairing: Mapping[int, int],
    ours: Sequence[Described],
    theirs: Sequence[Described],
    path: str,
) -> None:
    """Rejects tables that do not fit, or that the files lack.

    Args:
      starts: Starts of the model's weights; other tables are random states.
      pairing: Indices of earlier tables by index of a table.
      ours: Descriptions of the model's tables.
      theirs: Descriptions of the tables in the files.
      path: Prefix of the files.

    Raises:
      UserError: A table does not fit, or one of the two models lacks it.
    """
    differing, missing = [], []
    for i, start in starts.items():
        if i not in pairing:
            missing.append(ours[i])
        elif not start.reason:
            other = theirs[pairing[i]]
            if _unsized(ours[i], start) != _unsized(other, start):
                differing.append(f"{shown(ours[i])} here, {shown(other)} there")
    paired = set(pairing.values())
    states = [x[1:3] for i, x in enumerate(ours) if i not in starts]
    more = [x for j, x in enumerate(theirs) if j not in paired and x[1:3] not in states]
    if missing and [x[1:3] for x in ours] == [x[1:3] for x in theirs]:
        raise _without_values(path, [x[0] for x in missing])
    differing += [f"{shown(x)} only here" for x in missing]
    differing += [f"{shown(x)} only there" for x in more]
    if differing:
        raise UserError(
            f"the weights of {path} are of another model than `build_model` makes now: "
            f"{'; '.join(first(differing, 3))}",
            key="trainer.warm_start",
            remedy="Set `warm_start: null` to begin anew, or build the model as it "
            "was.",
        )


def _without_values(path: str, names: Sequence[str]) -> UserError:
    return UserError(
        f"{path} has no values for {abridged(quoted(names), 3)}: an earlier version "
        "left out what Keras 3 layers keep in lists and dicts, or the layers of "
        "`build_model` hold their variables in other attributes now",
        key="trainer.warm_start",
        remedy="Set `warm_start: null` to begin anew.",
    )


def _unsized(described: Described, start: _Start) -> list[Any]:
    """Shape and dtype, with None for the sizes of axes along which rows move."""
    moved = start.move.rows if start.move else ()
    shape = [None if axis in moved else x for axis, x in enumerate(described[1])]
    return [shape, described[2]]


def _assign(
    table: Sequence[Any], start: _Start, value: np.ndarray, is_chief: bool
) -> None:
    variables = [keras3.of_tensorflow(part) for part in table]
    if keras3.is_total_of_replicas(variables[0]):
        here = tf.distribute.get_strategy().experimental_local_results(variables[0])
        stored_variables.set_total(here, value, is_chief)
        return
    if start.move:
        own = np.concatenate([np.atleast_1d(x.numpy()) for x in variables])
        value = moves.apply(start.move, own, value)
    begin = 0
    for variable in variables:
        rows = variable.shape[0] if len(variables) > 1 else None
        variable.assign(value if rows is None else value[begin : begin + rows])
        begin += rows or 0


def _report(starts: Mapping[int, _Start], ours: Sequence[Described]) -> None:
    for i, start in starts.items():
        if start.move:
            fresh = start.move.entries - start.move.kept
            logging.info(
                "warm start: %s: the rows of %d entries moved with them, %d are new",
                *(ours[i][0], start.move.kept, fresh),
            )
        elif start.reason:
            message = f"{ours[i][0]} starts fresh: {start.reason}"
            events.emit("warning", message=f"trainer.warm_start: {message}")
