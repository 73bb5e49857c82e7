"""Moves the rows of an earlier model's table to their places in a new model's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from strategos.components.trainer.model.tables import columns
from strategos.components.trainer.model.tables.forward import UNKNOWN
from strategos.components.trainer.model.tables.relations import Relation, Tables
from strategos.components.transformed.feature_ids import FeatureIds

Ids = Mapping[str, FeatureIds]

_NONE = np.zeros(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Move:
    """The rows of a table that take earlier values; other rows keep new values.

    Attributes:
      rows: By axis, the rows in the new table, int64[n], and the row of each in the
        earlier table, int64[n].
      entries: Number of rows for entries of vocabularies.
      kept: Number of these rows that take earlier values.
    """

    rows: Mapping[int, tuple[np.ndarray, np.ndarray]]
    entries: int
    kept: int


def changed(new: FeatureIds | None, old: FeatureIds | None) -> bool:
    """Whether the meaning of a feature's values differs from the earlier model's."""
    return new is None or old is None or new.digest != old.digest


def comparable(
    index: int, then: int, tables: Tables, earlier: Tables
) -> tuple[list[Relation], list[Relation]]:
    """The comparable relations of a table and of an earlier table.

    A relation of numeric columns may be missed, depending on the sample rows. So it is
    left out if both models take its feature but only one of the tables has it.

    Args:
      index: Index of the table.
      then: Index of the earlier table.
      tables: The meaning of rows now.
      earlier: The meaning of rows in the earlier model.
    """
    both = tables.relations[index], earlier.relations[then]
    common = set.intersection(*({x.source for x in each} for each in both))
    shared = set(tables.inputs) & set(earlier.inputs)
    own, before = (
        [
            x
            for x in each
            if x.source in common or columns.feature_of(x.source) not in shared
        ]
        for each in both
    )
    return own, before


def find(
    relations: Sequence[Relation],
    earlier: Sequence[Relation],
    ids: Ids,
    earlier_ids: Ids,
    sizes: tuple[Sequence[int], Sequence[int]],
) -> Move | None:
    """Finds the new places of rows; None if they cannot be assigned.

    Args:
      relations: Relations of the new table.
      earlier: Relations of the earlier table.
      ids: The meaning of values now, by feature.
      earlier_ids: The meaning of values in the earlier model, by feature.
      sizes: Shapes of the new and the earlier table.
    """
    now, then = ({x.source: x for x in each} for each in (relations, earlier))
    if not now.keys() & then.keys():
        return None
    of_axis: dict[int, list[_Block]] = {}
    for source in sorted({*now, *then}):
        pair = now.get(source), then.get(source)
        new, old = ids.get(source), earlier_ids.get(source)
        if all(x and x.axis == UNKNOWN for x in pair) and not changed(new, old):
            continue
        block = _block(pair, new, old)
        if block is None:
            return None
        axis = next(x.axis for x in pair if x)
        of_axis.setdefault(axis, []).append(block)
    if not of_axis or any(len(shape) <= max(of_axis) for shape in sizes):
        return None
    moves = [
        _merged(axis, blocks, [shape[axis] for shape in sizes])
        for axis, blocks in of_axis.items()
    ]
    rows = {axis: pair for move in moves for axis, pair in move.rows.items()}
    return Move(rows, sum(x.entries for x in moves), sum(x.kept for x in moves))


def apply(move: Move, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Returns a copy of the new table with the earlier values of moved rows.

    Args:
      move: The rows to move.
      new: The new table's own values.
      old: The earlier table; its size may differ along the axes of the move.
    """
    every = [(np.arange(size), np.arange(size)) for size in new.shape]
    pairs = [move.rows.get(axis, pair) for axis, pair in enumerate(every)]
    to, of = (np.ix_(*each) for each in zip(*pairs, strict=True))
    moved = np.array(new)
    moved[to] = old[of]
    return moved


@dataclasses.dataclass(frozen=True)
class _Block:
    """Rows of one feature: pairs, all rows in both tables, and rows of entries."""

    new: np.ndarray
    old: np.ndarray
    all_new: np.ndarray
    all_old: np.ndarray
    entries: np.ndarray  # rows in the new table

    def within(self, new: int, old: int) -> _Block:
        """A copy without rows outside of the tables, e.g. -1 for a missing value."""
        fits = (self.new >= 0) & (self.new < new) & (self.old >= 0) & (self.old < old)
        return _Block(
            self.new[fits],
            self.old[fits],
            *(
                rows[(rows >= 0) & (rows < length)]
                for rows, length in (
                    (self.all_new, new),
                    (self.all_old, old),
                    (self.entries, new),
                )
            ),
        )


def _block(
    pair: tuple[Relation | None, Relation | None],
    new: FeatureIds | None,
    old: FeatureIds | None,
) -> _Block | None:
    """The rows of a feature of one or both tables; None if they cannot be assigned."""
    for relation, ids in zip(pair, (new, old), strict=True):
        if relation and (relation.axis == UNKNOWN or not ids or ids.entries is None):
            return None
    now, then = pair
    all_new, all_old = _all_rows(now, new), _all_rows(then, old)
    entries = _rows(now, new.ids) if now and new and new.varies else _NONE
    if not (now and new and then and old):
        return _Block(_NONE, _NONE, all_new, all_old, entries)
    if now.axis != then.axis or new.is_one_hot != old.is_one_hot:
        return None
    if not new.varies and changed(new, old):  # other columns of numbers
        return None
    pairs = [_entries(new, old)]
    pairs += [_others(new, old, above=each) for each in (True, False)]
    to, of = (np.concatenate(each) for each in zip(*pairs, strict=True))
    both = _has_row(now, to) & _has_row(then, of)
    return _Block(
        now.offset + to[both], then.offset + of[both], all_new, all_old, entries
    )


def _all_rows(relation: Relation | None, ids: FeatureIds | None) -> np.ndarray:
    if not relation or not ids:
        return _NONE
    return _rows(relation, np.concatenate([ids.ids, ids.others]))


def _rows(relation: Relation, ids: np.ndarray) -> np.ndarray:
    return relation.offset + ids[_has_row(relation, ids)]


def _has_row(relation: Relation, ids: np.ndarray) -> np.ndarray:
    return (ids >= relation.least) & (ids <= relation.most)


def _entries(new: FeatureIds, old: FeatureIds) -> tuple[np.ndarray, np.ndarray]:
    """The new and old ids of entries that both vocabularies have.

    A new id of several entries with different old ids is left out.
    """
    assert old.entries is not None and new.entries is not None  # see `_block`
    place = dict(zip(old.entries.tolist(), old.ids.tolist(), strict=True))
    pairs = zip(new.entries.tolist(), new.ids.tolist(), strict=True)
    return _agreeing([(to, place[x]) for x, to in pairs if x in place])


def _others(
    new: FeatureIds, old: FeatureIds, *, above: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The new and old ids of unknown keys, bucket by bucket.

    Args:
      new: The meaning of values now.
      old: The meaning of values in the earlier model.
      above: Whether to pair the ids above the entries' ids, or below.

    Returns:
      Two arrays int64[n]; empty if the number of buckets differs: keys then go to other
      buckets.
    """
    to, of = (
        x.others[x.others > x.ids.max() if above else x.others < x.ids.min()]
        for x in (new, old)
    )
    if len(to) != len(of):  # keys go to other buckets
        to = of = np.zeros(0, np.int64)
    return to, of


def _merged(axis: int, blocks: Sequence[_Block], lengths: Sequence[int]) -> Move:
    """Merges the blocks of several features, and other rows, to a move of one axis."""
    blocks = [each.within(*lengths) for each in blocks]
    bound = [
        np.unique(np.concatenate([getattr(x, name) for x in blocks]))
        for name in ("all_new", "all_old")
    ]
    pairs = [(x.new, x.old) for x in blocks] + _unbound(bound, lengths)
    to, of = (np.concatenate(each) for each in zip(*pairs, strict=True))
    new, old = _agreeing(list(zip(to.tolist(), of.tolist(), strict=True)))
    entries = np.unique(np.concatenate([x.entries for x in blocks]))
    kept = int(np.isin(entries, new).sum())
    return Move({axis: (new, old)}, len(entries), kept)


def _unbound(
    bound: Sequence[np.ndarray], lengths: Sequence[int]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs the rows of no feature's block, e.g. padding, spare rows, numeric columns.

    Rows before the first block keep their order if their number is unchanged, and so do
    rows after it. Otherwise, in a table of unchanged length, rows keep their places.
    """
    rest = [
        np.setdiff1d(np.arange(length), rows)
        for length, rows in zip(lengths, bound, strict=True)
    ]
    begins = [rows[0] if len(rows) else 0 for rows in bound]
    pairs = []
    for is_before in (True, False):
        to, of = (
            rows[(rows < begin) == is_before]
            for rows, begin in zip(rest, begins, strict=True)
        )
        if len(to) == len(of):
            pairs.append((to, of))
        elif lengths[0] == lengths[1]:
            stay = np.intersect1d(to, of)
            pairs.append((stay, stay))
    return pairs


def _agreeing(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Unique pairs, sorted, without first numbers that have several second numbers."""
    array = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)
    firsts, counts = np.unique(array[:, 0], return_counts=True)
    array = array[np.isin(array[:, 0], firsts[counts == 1])]
    return array[:, 0], array[:, 1]
