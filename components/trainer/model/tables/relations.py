"""Finds the rows of variables that belong to values of features.

An embedding is indexed by a feature, and the kernel of a dense layer is multiplied by
the feature's one-hot vector. Both are found by feeding one value at a time, through any
computation before, e.g. shifts, concatenations, one-hot and multi-hot encodings.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from strategos.components.targets.label import Label
from strategos.components.trainer.compat import (
    compiled,
    keras3,
    partitioned_variables,
)
from strategos.components.trainer.model.tables import columns
from strategos.components.trainer.model.tables.forward import (
    UNKNOWN,
    Forward,
    Use,
    differ,
)
from strategos.components.transformed.feature_ids import FeatureIds

_TAKING = frozenset({"ResourceGather", "GatherV2"})
_INDEXING = _TAKING | {"ResourceGatherNd", "GatherNd", "SparseTensorDenseMatMul"}
_PROBES = 8

ROWS = 8
"""Number of sample rows that suffices to find relations."""


@dataclasses.dataclass(frozen=True, order=True)
class Relation:
    """The rows of a variable for the values of a feature: row = value + offset.

    Attributes:
      source: Name of the feature, or of a look-up in the model.
      axis: Axis of the rows; `UNKNOWN` if they cannot be assigned to values.
      offset: Row of the value 0.
      least: The least value that has a row.
      most: The greatest value that has a row.
    """

    source: str
    axis: int = UNKNOWN
    offset: int = 0
    least: int = 0
    most: int = 0


@dataclasses.dataclass(frozen=True)
class Tables:
    """The meaning of the rows of a model's variables.

    Attributes:
      ids: The meaning of the values of each feature or look-up with relations.
      relations: The relations of each table of `model.variables`, ascending.
      inputs: The features that the model takes.
      label: The label, as `Label.text`; "" if unknown.
    """

    ids: Mapping[str, FeatureIds]
    relations: Sequence[Sequence[Relation]]
    inputs: Sequence[str] = ()
    label: str = ""


def find(
    model: tf.keras.Model,
    features: Mapping[str, Any],
    ids: Mapping[str, FeatureIds],
    label: str = "",
) -> Tables:
    """Finds the variables with rows for values of features, or for classes.

    Args:
      model: A built model; its state is not changed.
      features: A few rows, tensors `[rows, …]` by feature.
      ids: The meaning of the values of each feature, and of the label.
      label: The label, as `Label.text`; "" for none.
    """
    declared = _declared(model, ids)
    try:
        relations_of, lookups = _traced(model, features, ids, label)
    except Exception:  # the user's code, in any way
        logging.info("the model cannot be traced", exc_info=True)
        relations_of, lookups = _all_unknown(model, features, ids, label), {}
    relations = [
        declared.get(index) or _agreeing(each)
        for index, each in enumerate(relations_of)
    ]
    known = {**ids, **lookups}
    named = {x.source for each in relations for x in each}
    inputs = sorted(keras3.taken(model, features))
    used = {name: known[name] for name in named if name in known}
    return Tables(used, relations, inputs, label)


def _traced(
    model: tf.keras.Model,
    features: Mapping[str, Any],
    ids: Mapping[str, FeatureIds],
    label: str,
) -> tuple[list[set[Relation]], Mapping[str, FeatureIds]]:
    """The relations of each table, found in a trace, and the model's look-ups."""
    if model.run_eagerly:
        raise ValueError("The model runs eagerly.")
    forward = Forward(model, features)
    known = {**ids, **forward.lookups}
    relations_of: list[set[Relation]] = [
        set() for _ in partitioned_variables.tables_of(model)
    ]
    for source in sorted({x for use in forward.uses for x in use.sources}):
        uses = [x for x in forward.uses if source in x.sources]
        for table, relation in _of_source(forward, source, uses, known.get(source)):
            relations_of[table].add(relation)
    heads = _heads(label)
    for head, column in heads.items():
        for table, relation in _of_classes(forward, head, column, ids.get(column)):
            relations_of[table].add(relation)
    positions = columns.find(forward)
    for each in positions.found:
        if each.feature not in {x.source for x in relations_of[each.table]}:
            relations_of[each.table].add(
                Relation(each.name, each.axis, each.offset, 0, each.size - 1)
            )
    return relations_of, {**forward.lookups, **positions.ids}


def _all_unknown(
    model: tf.keras.Model,
    features: Mapping[str, Any],
    ids: Mapping[str, FeatureIds],
    label: str,
) -> list[set[Relation]]:
    """Unknown relations: matrices to all features, variables of rank > 0 to classes."""
    of_features = {
        Relation(name) for name in features if name in ids and _is_index(ids[name])
    }
    of_classes = {
        Relation(column)
        for column in _heads(label).values()
        if column in ids and ids[column].varies and _is_index(ids[column])
    }
    ranks = [
        len(partitioned_variables.shape(table))
        for table in partitioned_variables.tables_of(model)
    ]
    return [
        (of_features if n > 1 else set()) | (of_classes if n else set()) for n in ranks
    ]


def _heads(label: str) -> dict[str, str]:
    """The column that each output learns; "" is the output of a model with one head."""
    heads = Label.of(label).heads
    return {head: each.name for head, each in heads.items()} or {"": label}


def _is_index(ids: FeatureIds) -> bool:
    """Whether a feature's values may be indices of rows, not quantities."""
    return ids.looks_up or ids.is_discrete


def _of_classes(
    forward: Forward, head: str, label: str, ids: FeatureIds | None
) -> list[tuple[int, Relation]]:
    """The relations of a head's label that is a class, with indices of tables."""
    if ids is None or not ids.varies or not _is_index(ids):
        return []
    assigned = ids.entries is not None
    return [
        (
            table,
            Relation(label, axis, 0, 0, width - 1)
            if assigned and axis >= 0 and ids.ids.max() < width
            else Relation(label),
        )
        for table, axis, width in forward.columns(head)
    ]


def _of_source(
    forward: Forward, source: str, uses: Sequence[Use], ids: FeatureIds | None
) -> list[tuple[int, Relation]]:
    """The relations of one source, each with the index of its table."""
    assigned = ids is not None and ids.entries is not None
    indexing = [x for x in uses if _indexes(x)]
    opaque = [x for x in uses if _is_opaque(x)]
    products = [x for x in uses if not (_indexes(x) or _is_opaque(x))]
    if not (ids and _is_index(ids)):
        opaque = products = []  # a kernel takes the numbers themselves
    unknown = opaque if assigned else [*opaque, *indexing]
    relations_of = [(x.table, Relation(source)) for x in unknown]
    probed = [*(indexing if assigned else ()), *products]
    if not probed:
        return relations_of
    known, probes = _probes(forward, source, ids)
    values = forward.computed(source, probes)
    for use in probed:
        met = [
            (each, computed[use])
            for each, computed in zip(known, values, strict=True)
            if computed
        ]
        relation = (
            _row_of_index(use, source, met)
            if _indexes(use)
            else _row_of_column(use, source, met, assigned)
        )
        if relation is not None:
            relations_of.append((use.table, relation))
    return relations_of


def _indexes(use: Use) -> bool:
    return use.op.type in _INDEXING and use.place < 2


def _probes(
    forward: Forward, source: str, ids: FeatureIds | None
) -> tuple[list[int], list[Any]]:
    """Ids, and the value of each to be fed alone.

    For a feature without assigned entries, values of its sample rows, numbered from 0.
    """
    if ids is None or ids.entries is None:
        value = forward.feature(source)
        flat = value if isinstance(value, tf.Tensor) else _flat(value)
        rows = flat.numpy().reshape(-1)
        distinct = [rows[rows == x][0] for x in sorted(set(rows.tolist()))[:_PROBES]]
        return [*range(len(distinct))], [_filled(value, x) for x in distinct]
    entries, others = np.unique(ids.ids), ids.others.tolist()
    middle = np.linspace(0, len(entries) - 1, _PROBES).round().astype(int)
    chosen = [int(entries[i]) for i in sorted(set(middle.tolist()))]
    chosen += [x for x in sorted({*others[:1], *others[-1:]}) if x not in chosen]
    if source in forward.lookups:
        return chosen, chosen
    value = forward.feature(source)
    if ids.is_one_hot:
        width = value.shape[-1]
        return chosen, [
            tf.broadcast_to(tf.one_hot(x, width, dtype=value.dtype), value.shape)
            for x in chosen
        ]
    return chosen, [_filled(value, x) for x in chosen]


def _flat(value: Any) -> tf.Tensor:
    return value.values if isinstance(value, tf.SparseTensor) else value.flat_values


def _filled(value: Any, by: Any) -> Any:
    """A feature of the same shape with one value everywhere."""
    if isinstance(value, tf.Tensor):
        return tf.fill(value.shape, tf.constant(by, value.dtype))
    filled = tf.fill(_flat(value).shape, tf.constant(by, value.dtype))
    if isinstance(value, tf.SparseTensor):
        return tf.SparseTensor(value.indices, filled, value.dense_shape)
    return value.with_flat_values(filled)


def _row_of_index(
    use: Use, source: str, met: Sequence[tuple[int, np.ndarray]]
) -> Relation | None:
    """The relation of an indexed variable; None if its rows ignore the source."""
    rows = [
        (each, set(x[..., -1].ravel() if _is_nd(use) else x.ravel())) for each, x in met
    ]
    if all(x == rows[0][1] for _, x in rows) and len(rows) > 1:
        return None  # the rows do not depend on this source
    if not rows or not _takes_rows(use):
        return Relation(source)
    always = set.intersection(*(x for _, x in rows))
    own = [(each, x - always) for each, x in rows]
    offsets = {int(x.pop()) - each for each, x in own if len(x) == 1}
    single = all(not x for _, x in own)  # the others were popped
    if len(offsets) != 1 or not single:
        return Relation(source)
    (offset,) = offsets
    hidden = [
        each + offset
        for (each, x), (_, y) in zip(rows, own, strict=True)
        if x <= always and each + offset not in always
    ]
    if hidden:
        return Relation(source)
    return Relation(source, 0, offset, min(known := [x for x, _ in met]), max(known))


def _is_opaque(use: Use) -> bool:
    """Whether an operation may index a variable in an unknown way, e.g. in a loop."""
    calls = use.op.type.endswith(("PartitionedCall", "While", "If", "Case"))
    return not _indexes(use) and (calls or not use.operand.dtype.is_floating)


def _is_nd(use: Use) -> bool:
    return use.op.type in ("ResourceGatherNd", "GatherNd", "SparseTensorDenseMatMul")


def _takes_rows(use: Use) -> bool:
    """Whether an operation indexes the first axis of the variable."""
    if use.op.type == "GatherV2":
        axis = tf.get_static_value(use.op.inputs[2])
        return axis == 0 and not use.op.get_attr("batch_dims")
    if use.op.type == "SparseTensorDenseMatMul":
        return not (use.op.get_attr("adjoint_a") or use.op.get_attr("adjoint_b"))
    return use.op.type == "ResourceGather" and not use.op.get_attr("batch_dims")


def _row_of_column(
    use: Use, source: str, met: Sequence[tuple[int, np.ndarray]], assigned: bool
) -> Relation | None:
    """The relation of a variable in a product, perhaps with one-hot vectors.

    None if the operand does not depend on the source, or if the same columns change
    between any two values, as for a number.
    """
    if any(x.ndim == 0 or x.shape != met[0][1].shape for _, x in met):
        return Relation(source)
    matrices = [(each, x.reshape(-1, x.shape[-1])) for each, x in met]
    differing = {
        (one, other): set(np.flatnonzero(differ(x, y).any(0)).tolist())
        for (one, x), (other, y) in itertools.combinations(matrices, 2)
    }
    if not any(differing.values()):
        return None if len(met) > 1 else Relation(source)
    offset, own = _one_hot(matrices)
    fits = all(
        changed == {x + offset for x in pair if x in own}
        for pair, changed in differing.items()
    )
    if not own or not fits:
        always = set.intersection(*differing.values())
        return None if always and len(differing) > 1 else Relation(source)
    axis = use.axis_of_columns(met[0][1].shape[-1])
    if not assigned or axis == UNKNOWN:
        return Relation(source)
    return Relation(source, axis, offset, min(own), max(own))


def _one_hot(matrices: Sequence[tuple[int, np.ndarray]]) -> tuple[int, list[int]]:
    """The column of id 0, and the ids with a column of their own.

    An id beyond the width, e.g. of an unknown key, may have no column. No ids if the
    columns are not one-hot vectors.
    """
    base = np.min([x for _, x in matrices], axis=0)
    own = {each: np.flatnonzero((x > base).any(0)) for each, x in matrices}
    heights = [(x - base)[:, own[each]] for each, x in matrices if len(own[each])]
    offsets = {int(x[0]) - each for each, x in own.items() if len(x)}
    single = all(len(x) <= 1 for x in own.values())
    if not single or len(offsets) != 1:
        return 0, []
    if not all(np.array_equal(x, heights[0]) for x in heights):
        return 0, []
    return offsets.pop(), [each for each, x in own.items() if len(x)]


def _agreeing(relations: set[Relation]) -> list[Relation]:
    """The relations of a table, sorted; contradictory relations become unknown."""
    counts = Counter(x.source for x in relations)
    return sorted(
        {x if counts[x.source] == 1 else Relation(x.source) for x in relations}
    )


def _declared(
    model: tf.keras.Model, ids: Mapping[str, FeatureIds]
) -> dict[int, list[Relation]]:
    """The relations of layers made by `context.embedding`, by index of a table."""
    owner: dict[int, Relation] = {}
    for layer in compiled.layers(model):
        feature = getattr(layer, "strategos_feature", "")
        if feature in ids and ids[feature].entries is not None:
            every = np.concatenate([ids[feature].ids, ids[feature].others])
            bounds = int(every.min()), int(every.max())
            relation = Relation(feature, 0, layer.strategos_offset, *bounds)
            owner |= {id(variable): relation for variable in compiled.weights(layer)}
    tables = partitioned_variables.tables_of(model)
    return {
        index: [owner[id(table[0])]]
        for index, table in enumerate(tables)
        if id(table[0]) in owner
    }
