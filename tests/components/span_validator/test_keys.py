"""Keys of a span that must be unique, beside pandas."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from strategos.components.errors import UserError
from strategos.components.span_validator import keys


def _unique(columns):
    return {"columns": list(columns), "file_columns": []}


@pytest.fixture
def judged(write, validate, gates):
    """The checks of `gates.keys` on the first span: `judged(columns, *keys)`."""

    def call(columns, *keys):
        write(1, **columns)
        gates["keys"] = {", ".join(each): _unique(each) for each in keys}
        _, found, _ = validate([1], [])
        return [each for each in found["checks"] if each["gate"] == "keys"]

    return call


@pytest.mark.parametrize("seed", range(4))
def test_rows_with_the_key_of_an_earlier_one_are_those_of_pandas(
    judged, monkeypatch, seed
):
    monkeypatch.setattr(keys, "_ROWS_AT_ONCE", 37)  # several passes over the rows
    random = np.random.default_rng(seed)
    rows = int(random.integers(50, 400))
    frame = pd.DataFrame(
        {
            "customer": random.integers(0, rows, rows),
            "day": random.choice(["mon", "tue"], rows),
            "price": random.choice([0.5, 1.25, 2.0, 7.0], rows),
        }
    ).astype(object)
    frame[random.random(frame.shape) < 0.05] = None
    wanted = (["customer"], ["customer", "day"], ["day", "price", "customer"])
    checks = judged({name: [*values] for name, values in frame.items()}, *wanted)
    for columns, check in zip(wanted, checks, strict=True):
        there = frame.dropna(subset=columns)
        repeated = int(there.duplicated(columns).sum())
        assert check["feature"] == ", ".join(columns)
        assert (check["received"], check["ok"]) == (repeated, not repeated)
        assert check["note"].startswith(f"{repeated} of {rows} rows have the key")


def test_the_first_two_rows_with_a_key_are_named(judged, tmp_path):
    (check,) = judged({"id": ["a", "b", "c", "b", "b"], "x": range(5)}, ["id"])
    file = tmp_path / "data" / "1" / "rows.csv"
    assert check["note"] == (
        "2 of 5 rows have the key of an earlier one: "
        f"'b' in {file}: line 3 and {file}: line 5"
    )


def test_numbers_are_compared_by_value_and_texts_by_spelling(judged):
    numbers = {"x": ["5", "5.0", " 5", "6.5", "6.50"], "c": ["5", "5.0", "a", "A", "é"]}
    of_x, of_c = judged(numbers, ["x"], ["c"])
    assert of_x["received"] == 3
    assert of_c["received"] == 1  # 5 and 5.0, as in data.split


def test_equal_hashes_of_different_keys_are_told_apart(judged, monkeypatch):
    zeros = property(lambda batch: np.zeros(len(batch.rows), np.uint64))
    monkeypatch.setattr(keys._Batch, "hashes", zeros)
    (check,) = judged({"id": ["a", "b", "b"], "x": range(3)}, ["id"])
    assert "'b' in " in check["note"] and "'a'" not in check["note"]


def test_a_column_that_does_not_exist_fails_by_name(judged):
    (check,) = judged({"id": [1, 2], "x": [1, 2]}, ["id", "dya"])
    assert (check["ok"], check["note"]) == (False, "no column dya")


def test_keys_of_all_files_of_a_span_are_compared(tmp_path, validate, gates):
    folder = tmp_path / "data" / "1"
    folder.mkdir(parents=True)
    for number, ids in enumerate((["a", "b"], ["c", "a"])):
        pd.DataFrame({"id": ids}).to_parquet(folder / f"{number}.parquet")
    gates["keys"] = {"id": _unique(["id"])}
    _, found, _ = validate([1], [], pattern="{SPAN}/*.parquet")
    (check,) = (each for each in found["checks"] if each["gate"] == "keys")
    assert check["received"] == 1
    assert "0.parquet" in check["note"] and "1.parquet" in check["note"]


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_a_file_lacks_are_those_of_pandas(
    write, validate, gates, tmp_path, monkeypatch, seed
):
    monkeypatch.setattr(keys, "_ROWS_AT_ONCE", 29)
    random = np.random.default_rng(seed)
    rows = int(random.integers(60, 300))
    frame = pd.DataFrame(
        {"n": random.integers(0, 40, rows), "c": random.choice(list("abcd"), rows)}
    ).astype(object)
    frame[random.random(frame.shape) < 0.05] = None
    pairs = frame.dropna().drop_duplicates()
    known = pairs.sample(frac=0.9, random_state=seed)
    known.astype({"n": float}).rename(columns={"n": "number"}).to_parquet(
        tmp_path / "known.parquet"
    )
    write(1, **{name: [*values] for name, values in frame.items()})
    gates["keys"] = {"pair": {"columns": ["n", "c"], "file_columns": ["number", "c"]}}
    others = {"gates.keys.pair.file": str(tmp_path / "known.parquet")}
    _, found, _ = validate([1], [], others=others)
    (check,) = (each for each in found["checks"] if each["gate"] == "keys")
    merged = frame.dropna().reset_index().merge(known, "left", indicator=True)
    lacking = merged[merged["_merge"] == "left_only"].sort_values("index")
    assert check["received"] == len(lacking)
    assert check["ok"] == (not len(lacking))
    shown = re.findall(r"'(\d+), (\w)' in \S+rows.csv: line (\d+)", check["note"])
    rows_of = zip(lacking["n"], lacking["c"], lacking["index"] + 2, strict=True)
    assert len(shown) == min(len(lacking), 3)
    assert {*shown} <= {tuple(map(str, each)) for each in rows_of}


def test_a_file_without_the_column_is_rejected_by_name(
    write, validate, gates, tmp_path
):
    write(1, carrier=["UA", "AA"])
    (tmp_path / "carriers.csv").write_text("code,name\nUA,United\n")
    gates["keys"] = {"airline": _unique(["carrier"])}
    others = {"gates.keys.airline.file": str(tmp_path / "carriers.csv")}
    with pytest.raises(
        UserError,
        match=r"no column `carrier`\s+Set `file_columns`\. Allowed: code, name",
    ):
        validate([1], [], others=others)
