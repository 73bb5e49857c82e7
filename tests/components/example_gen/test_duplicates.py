"""Rows that stand in several splits, counted beside pandas."""

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
from strategos.components.data_files.findings import duplicates
from strategos.components.data_files.findings.duplicates import RowHashes, Shared

SPLITS = ("train", "validation", "eval")


def expected(values, places, split="eval"):
    values, places = pd.Series(values), np.array(places)
    own = SPLITS.index(split)
    return int(values[places == own].isin(values[places < own]).sum())


def hashed(values, places):
    found = RowHashes(SPLITS)
    records = pa.chunked_array([pa.array([f"{v}".encode() for v in values])])
    found.add(records, {x: np.array(places) == n for n, x in enumerate(SPLITS)})
    return pickle.loads(pickle.dumps(found))


ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=60
)


@settings(derandomize=True, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 60))
def test_shared_rows_are_counted_as_pandas_counts_them(rows, cut):
    values, places = zip(*rows, strict=True)
    found = hashed(values[:cut], places[:cut]) if values[:cut] else RowHashes(SPLITS)
    if values[cut:]:
        found = found.merge(hashed(values[cut:], places[cut:]))
    for split in SPLITS:
        rows = expected(values, places, split)
        assert found.shared(split) == Shared(rows, exact=True)


def test_the_estimate_of_many_rows_does_not_depend_on_their_cut(monkeypatch):
    monkeypatch.setattr(duplicates, "EXACT_ROWS", 1000)
    random = np.random.default_rng(1)
    values, places = random.integers(0, 20_000, (2, 40_000))
    places = np.where(places < 16_000, 0, 2)
    whole = hashed(values, places).shared("eval")
    parts = RowHashes(SPLITS)
    for start in range(0, 40_000, 1700):
        some = slice(start, start + 1700)
        parts = parts.merge(hashed(values[some], places[some]))
    assert parts.shared("eval") == whole
    assert not whole.exact
    assert whole.rows == pytest.approx(expected(values, places), rel=0.15)


def test_rows_left_of_many_shards_do_not_keep_the_others_in_memory(monkeypatch):
    monkeypatch.setattr(duplicates, "EXACT_ROWS", 1000)
    random = np.random.default_rng(1)
    together = RowHashes(SPLITS)
    for _ in range(100):
        shard = hashed(random.integers(0, 2**60, 1000), random.integers(0, 3, 1000))
        together.merge(shard)
    kept = [array for pair in together._waiting for array in pair]
    whole = [array if array.base is None else array.base for array in kept]
    assert sum(array.nbytes for array in whole) < 100_000  # 3.2 MB with the others


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
    thirds = {"by": "ratio", "keys": [], "train": 8, "eval": 2, "validation": 1}
    validation, evaluation = warned("x,y\n" + rows, thirds)
    assert "`validation` are identical to a row of `train`: " in validation
    assert evaluation == message.replace("`train`", "`train` or `validation`").replace(
        "trained on", "trained on or chosen by"
    )


def test_different_rows_and_whole_keys_are_not_warned_about(warned):
    rows = "".join(f"{i % 50},{i % 2}\n" for i in range(500))
    split = {"by": "hash", "keys": ["x"], "train": 8, "eval": 2}
    assert warned("x,y\n" + rows, split) == []
    rows = "".join(f"{i},{i % 2}\n" for i in range(500))
    assert warned("x,y\n" + rows) == []
