"""The validation split: rows of the training side only, whatever divides the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files.splitting import Splitter

KEYS = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=60),
    st.lists(st.one_of(st.none(), st.integers(-99, 99)), min_size=1, max_size=60),
    st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=60),
)
SPLITS = ("train", "validation", "eval")


def masks(split, columns, span=0):
    batch = pa.RecordBatch.from_pydict(columns)
    splitter = Splitter.from_json(json.dumps(split), spans=range(6))
    return splitter.masks(batch, span, "a.csv", 3)


@settings(derandomize=True, deadline=None)
@given(
    first=KEYS,
    by=st.sampled_from(["hash", "ratio", "span"]),
    shares=st.tuples(st.integers(2, 20), st.integers(1, 20), st.integers(1, 19)),
    spans=st.tuples(st.integers(1, 3), st.integers(0, 5)),
)
def test_eval_keeps_its_rows_and_validation_takes_those_of_train(
    first, by, shares, spans
):
    train, evaluation, part = shares
    held_out, span = spans
    validation = min(part, 2 if by == "span" else train - 1)
    columns = {"a": first, "b": np.arange(len(first)) % 3}
    split = {"by": by, "keys": ["a", "b"], "train": train, "eval": evaluation}
    split["spans"] = held_out
    before = masks(split, columns, span)
    after = masks({**split, "validation": validation}, columns, span)
    assert list(before) == ["train", "eval"]
    assert (after["eval"] == before["eval"]).all()
    assert (after["train"] | after["validation"] == before["train"]).all()
    assert (sum(after.values()) == 1).all()
    if by == "hash":
        rows = zip(first, columns["b"], *after.values(), strict=True)
        sides = [
            ((key + 0.0 if isinstance(key, float) else key, b), tuple(side))
            for key, b, *side in rows
        ]
        assert len(dict(sides)) == len(set(sides))
    if by == "span":
        assert after["validation"].all() == (
            5 - held_out - validation < span <= 5 - held_out
        )


@pytest.mark.parametrize("by", ["hash", "ratio"])
def test_validation_gets_its_share_of_the_rows(by):
    split = {"by": by, "keys": ["a"], "train": 8, "eval": 2, "validation": 1}
    found = masks(split, {"a": np.arange(20_000)})
    shares = [found[name].mean() for name in ("train", "validation", "eval")]
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=0.01)


def read(examples, split):
    folder = Path(examples.artifact.uri)
    files = [*folder.glob(f"Split-{split}/*"), *folder.glob(f"Columns-{split}/*")]
    return {str(x.relative_to(folder)): x.read_bytes() for x in files}


@pytest.mark.parametrize(
    "suffix", ["csv", pytest.param("parquet", marks=pytest.mark.formats)]
)
@pytest.mark.parametrize("by", ["hash", "ratio", "span"])
def test_files_of_eval_are_the_same_with_and_without_validation(
    tmp_path, run, suffix, by
):
    random = np.random.default_rng(1)
    for span in range(1, 5):
        table = pa.table(
            {"key": random.integers(0, 60, 200), "x": random.normal(size=200)}
        )
        file = tmp_path / f"{span}" / f"a.{suffix}"
        file.parent.mkdir()
        if suffix == "csv":
            table.to_pandas().to_csv(file, index=False)
        else:
            pq.write_table(table, file)
    split = {"by": by, "keys": ["key"], "train": 8, "eval": 2, "spans": 1}
    pattern = tmp_path / "{SPAN}" / f"*.{suffix}"
    before, after = run(pattern, split), run(pattern, {**split, "validation": 2})
    assert after.artifact.split_names == '["train", "validation", "eval"]'
    assert read(before, "eval") == read(after, "eval") != {}

    def rows(examples, *splits):
        return sorted(row["x"] for split in splits for row in examples.rows(split))

    assert rows(after, "train", "validation") == rows(before, "train")
    counts = [after.artifact.get_int_custom_property(f"rows_{x}") for x in SPLITS]
    assert [len(after.rows(x)) for x in SPLITS] == counts and all(counts)
    if by == "span":
        assert counts == [200, 400, 200]
