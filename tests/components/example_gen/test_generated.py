"""Generated tables, cut anywhere: every row once, no value changed, the same types."""

from __future__ import annotations

import csv
import decimal
import itertools
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from strategos.components.data_files import shards
from strategos.components.data_files.inference import Profile
from strategos.components.data_files.sources import Part
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.kinds import Kind

derandomized = settings(derandomize=True, deadline=None)

INT = st.integers(-(2**63), 2**63 - 1).map(lambda value: (Kind.INT, str(value)))
FLOAT = st.floats(width=32, allow_nan=False).map(lambda x: (Kind.FLOAT, repr(x)))
WHOLE = st.integers(-(2**60), 2**60).map(lambda value: (Kind.FLOAT, f"{value}.0"))
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXT = st.text(CHARACTERS | st.sampled_from('",\r\n'), max_size=6)
WORD = TEXT.map(lambda text: (Kind.BYTES, f"x{text}"))
MISSING = st.just((Kind.UNKNOWN, ""))
COLUMN = st.sampled_from(
    [
        *(INT, FLOAT, WORD, INT | MISSING, INT | FLOAT, FLOAT | WORD | MISSING),
        *(WHOLE, INT | WHOLE | MISSING, MISSING),
    ]
)
ROWS = COLUMN.flatmap(
    lambda first: COLUMN.flatmap(
        lambda second: st.lists(st.tuples(first, second), min_size=9, max_size=40)
    )
)


def kind_of(column):
    """INT in place of FLOAT if all is whole, and float32 would change a number."""
    kind = max(kind for kind, _ in column)
    if kind != Kind.FLOAT:
        return kind
    numbers = [decimal.Decimal(_number(text)) for _, text in column if text]
    whole = all(n.is_finite() and n % 1 == 0 and -(2**63) <= n < 2**63 for n in numbers)
    changed = whole and any(int(np.float32(int(n))) != n for n in numbers)
    return Kind.INT if changed else kind


def _number(text):
    """A number as it is read: with an exponent, it is the nearest double."""
    return float(text) if "e" in text else text


def expected(rows):
    """Per row: each column's value as the narrowest type that holds all of them."""
    kinds = [kind_of(column) for column in zip(*rows, strict=True)]
    convert = {
        Kind.INT: lambda text: int(decimal.Decimal(_number(text))),
        Kind.FLOAT: lambda text: float(np.float32(float(text))),
        Kind.BYTES: str.encode,
    }
    for row in rows:
        pairs = zip(kinds, row, strict=True)
        yield [[convert[kind](text)] if text else [] for kind, (_, text) in pairs]


@pytest.mark.formats
@settings(derandomized, max_examples=15, phases=[Phase.generate])  # each is a run
@given(rows=ROWS, size=st.integers(1, 200), end=st.sampled_from(["\n", "\r\n"]))
def test_every_row_is_written_once_with_its_values(
    run, tmp_path_factory, rows, size, end
):
    names = ["row", "a", "b"]
    path = tmp_path_factory.mktemp("generated") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        quoting = csv.QUOTE_ALL if end == "\n" else csv.QUOTE_MINIMAL
        writer = csv.writer(file, lineterminator=end, quoting=quoting)
        writer.writerow(names)
        writer.writerows([i, a, b] for i, ((_, a), (_, b)) in enumerate(rows))
    halves = {"by": "ratio", "keys": [], "train": 1, "eval": 1}
    found = []
    for most in (size, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "_LEAST_BYTES", most)
            patch.setattr(shards, "_MOST_BYTES", most)
            examples = run(path, split=halves)
        splits = examples.rows("train"), examples.rows("eval")
        found.append([[[row[n] for n in names] for row in split] for split in splits])
    assert repr(found[0]) == repr(found[1])
    read = sorted(sum(found[0], []))
    whole = [[[i], *values] for i, values in enumerate(expected(rows))]
    assert repr(read) == repr(whole)


ODD = st.sampled_from(["NA", "nan", "007", "0x1", "1_0", "9" * 30, " 1", "-", " "])
FIELDS = st.lists(
    st.one_of(INT, FLOAT, WORD, MISSING).map(lambda pair: pair[1]) | ODD, max_size=30
)


@settings(derandomized, max_examples=60)
@given(fields=FIELDS, cuts=st.lists(st.integers(0, 30), max_size=4), data=st.data())
def test_types_do_not_depend_on_the_cut_nor_on_the_order_of_merging(fields, cuts, data):
    def seen(start, stop):
        profile = Profile(numerals.Nulls(("NA",)))
        values = [field or None for field in fields[start:stop]]
        profile.see_text(pa.array(values, pa.string()), "a.csv", Part(), start)
        return profile

    ends = [0, *sorted(min(cut, len(fields)) for cut in cuts), len(fields)]
    parts = [seen(*pair) for pair in itertools.pairwise(ends)]
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        ours, theirs = (pickle.loads(pickle.dumps(part)) for part in parts[i : i + 2])
        ours.merge(theirs)
        parts[i : i + 2] = [ours]
    whole = seen(0, len(fields))
    assert parts[0].kind == whole.kind
    assert parts[0].because_of.get(whole.kind) == whole.because_of.get(whole.kind)
    assume(whole.kind in (Kind.INT, Kind.FLOAT))
    assert parts[0].values == whole.values
