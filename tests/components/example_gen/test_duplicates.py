"""Rows that stand in both splits, counted beside pandas."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components import events
from strategos.components.example_gen import duplicates
from strategos.components.example_gen.duplicates import RowHashes, Shared


def expected(values, train):
    values, train = pd.Series(values), np.array(train, bool)
    return int(values[~train].isin(values[train]).sum())


def hashed(values, train):
    found = RowHashes()
    records = pa.chunked_array([pa.array([f"{v}".encode() for v in values])])
    found.add(records, np.array(train, bool))
    return pickle.loads(pickle.dumps(found))


ROWS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=60)


@settings(derandomize=True, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 60))
def test_shared_rows_are_counted_as_pandas_counts_them(rows, cut):
    values, train = zip(*rows, strict=True)
    found = hashed(values[:cut], train[:cut]) if values[:cut] else RowHashes()
    if values[cut:]:
        found = found.merge(hashed(values[cut:], train[cut:]))
    assert found.shared() == Shared(expected(values, train), exact=True)


def test_the_estimate_of_many_rows_does_not_depend_on_their_cut(monkeypatch):
    monkeypatch.setattr(duplicates, "EXACT_ROWS", 1000)
    random = np.random.default_rng(1)
    values, train = random.integers(0, 20_000, 40_000), random.random(40_000) < 0.8
    whole = hashed(values, train).shared()
    parts = RowHashes()
    for start in range(0, 40_000, 1700):
        some = slice(start, start + 1700)
        parts = parts.merge(hashed(values[some], train[some]))
    assert parts.shared() == whole
    assert not whole.exact
    assert whole.rows == pytest.approx(expected(values, train), rel=0.15)


@pytest.fixture
def warned(run, tmp_path):
    """Runs ExampleGen on the text of a CSV; the warnings."""

    def call(text, split=None):
        path = tmp_path / "a.csv"
        path.write_text(text)
        log = tmp_path / "events.jsonl"
        log.unlink(missing_ok=True)
        log.touch()
        events.open_sink(str(log))
        run(path, split)
        events.open_sink(None)
        found = map(json.loads, log.read_text().splitlines())
        return [each["message"] for each in found if each["event"] == "warning"]

    return call


def test_rows_in_both_splits_are_warned_about(warned):
    rows = "".join(f"{i % 50},{i % 2}\n" for i in range(500))
    (message,) = warned("x,y\n" + rows)
    assert "rows of the split `eval` are identical to a row of `train`" in message
    assert "by: hash" in message


def test_different_rows_and_whole_keys_are_not_warned_about(warned):
    rows = "".join(f"{i % 50},{i % 2}\n" for i in range(500))
    split = {"by": "hash", "keys": ["x"], "train": 8, "eval": 2}
    assert warned("x,y\n" + rows, split) == []
    rows = "".join(f"{i},{i % 2}\n" for i in range(500))
    assert warned("x,y\n" + rows) == []
