"""Random changes of vocabularies and features: each row where it belongs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.trainer.model.tables import moves
from strategos.components.trainer.model.tables.relations import Relation
from strategos.components.transformed.feature_ids import FeatureIds

FEATURES, NUMBERS = ("shop", "item"), 2
vocabularies = st.lists(  # entries, and which of them share an id
    st.tuples(st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda x: x[0],
)
kernels = st.dictionaries(
    st.sampled_from(FEATURES), st.tuples(vocabularies, st.integers(0, 2)), min_size=1
)


class Kernel:
    """Rows of numbers, then a block for each feature, then rows of numbers again."""

    def __init__(self, drawn):
        self.ids, self.relations, self.meaning = {}, [], {}
        row = NUMBERS
        for feature, (vocabulary, buckets) in drawn.items():
            entries = [entry for entry, _ in vocabulary]
            shares = [i > 0 and shared for i, (_, shared) in enumerate(vocabulary)]
            ids = np.cumsum([not x for x in shares]) - 1
            size = int(ids.max()) + 1
            others = np.arange(size, size + buckets)
            self.ids[feature] = FeatureIds(
                repr(drawn[feature]), True, np.array(entries), ids, others
            )
            most = size + buckets - 1
            self.relations.append(Relation(feature, 0, row, 0, most))
            for entry, place in zip(entries, ids.tolist(), strict=True):
                self.meaning.setdefault(row + place, set()).add((feature, entry))
            for bucket in range(buckets):
                key = (feature, f"bucket {bucket} of {buckets}")
                self.meaning[row + size + bucket] = {key}
            row += size + buckets
        self.size = row + NUMBERS
        for number in range(NUMBERS):
            self.meaning[number] = {("", f"before {number}")}
            self.meaning[row + number] = {("", f"after {number}")}


def expected(new, old):
    """For each new row the old row with the same meaning; -1 for none, or several."""
    place = {key: row for row, keys in old.meaning.items() for key in keys}
    found = []
    for row in range(new.size):
        rows = {place[key] for key in new.meaning[row] if key in place}
        found.append(rows.pop() if len(rows) == 1 else -1)
    return found


@settings(max_examples=100, deadline=None)
@given(old=kernels, new=kernels)
def test_each_row_takes_the_earlier_row_of_the_same_meaning(old, new):
    before, after = Kernel(old), Kernel(new)
    move = moves.find(
        after.relations,
        before.relations,
        after.ids,
        before.ids,
        ([after.size, 1], [before.size, 1]),
    )
    if not set(old) & set(new):
        assert move is None
        return
    found = moves.apply(
        move,
        np.full([after.size, 1], -1),
        np.arange(before.size)[:, np.newaxis],
    )
    assert found.ravel().tolist() == expected(after, before)
