"""`data.split` by hash: equal values have equal keys, however a file spells them."""

from __future__ import annotations

import decimal
import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategos.components.data_files.splitting import Splitter
from strategos.components.data_files.values import numerals, spelling
from strategos.components.data_files.values.kinds import Kind

derandomized = settings(derandomize=True, deadline=None)
NULLS = numerals.Nulls(("NA",))
NUMBERS = st.sampled_from([Kind.INT, Kind.FLOAT])
SPLIT = {"by": "hash", "keys": ["customer"], "train": 8, "eval": 2}


def keys(values, data_type=None, kind=Kind.FLOAT):
    return spelling.key_of(pa.array(values, data_type), kind, NULLS).to_pylist()


SPELLINGS = [
    str,
    lambda value: f"{value}.0",
    lambda value: f"{value}.",
    lambda value: f" {value}\t",
    lambda value: f"{value:+}",
    lambda value: f"{value:+}.000",
    lambda value: f"{value:025}",
    lambda value: f"{decimal.Decimal(value):e}",
]


@derandomized
@given(
    value=st.integers(-(2**53), 2**53),
    spellings=st.lists(st.sampled_from(SPELLINGS), min_size=1),
)
def test_a_whole_number_has_one_key_in_csv_and_parquet(value, spellings):
    text = [spell(value) for spell in spellings]
    expected = {str(value).encode()}
    assert set(keys(text)) == expected
    assert set(keys(text, pa.large_string())) == expected
    assert set(keys([value], pa.int64(), Kind.INT)) == expected
    assert set(keys([value], pa.float64())) == expected
    assert set(keys([decimal.Decimal(value)], pa.decimal128(38, 4))) == expected
    if float(np.float32(value)) == value:
        assert set(keys([float(value)], pa.float32())) == expected


@derandomized
@given(value=st.floats(allow_nan=False, allow_infinity=False), sign=st.booleans())
def test_a_number_is_keyed_by_its_shortest_decimal(value, sign):
    text = [repr(value), f" {value!r}", f"{value:.17e}", f"{value:.25e}"]
    if sign and value > 0:
        text.append(f"+{value!r}")
    whole = value.is_integer()
    expected = str(int(value)) if whole else repr(value)
    assert set(keys(text)) == set(keys([value], pa.float64())) == {expected.encode()}


@derandomized
@given(value=st.integers(-(2**63), 2**63 - 1), kind=st.sampled_from(list(Kind)[1:]))
def test_a_column_that_becomes_float_or_text_moves_no_row(value, kind):
    assert keys([str(value)], kind=kind) == [str(value).encode()]
    assert keys([f"{value}.0"], kind=kind) == [str(value).encode()]


@derandomized
@given(text=st.text(max_size=8).filter(lambda t: not t.strip().strip("+-.0123456789")))
def test_text_is_keyed_as_it_is(text):
    spelled = [f"x{text}", f"{text}y", f"00{text}1", "1.10", "5e0", "NA", " "]
    assert keys(spelled, pa.string(), Kind.BYTES) == [s.encode() for s in spelled]


@pytest.mark.parametrize("kind", [Kind.INT, Kind.FLOAT])
def test_missing_numbers_have_one_key(kind):
    assert keys(["", " ", "NA", " NA", None], pa.string(), kind) == [None] * 5


def test_booleans_are_keyed_as_the_numbers_that_they_become():
    assert keys([True, False], pa.bool_(), Kind.INT) == [b"1", b"0"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_customer_spelled_in_two_ways_is_in_one_split(run, tmp_path, suffix):
    (tmp_path / "1.csv").write_text(
        "customer,y\n" + "".join(f"{i},{i % 2}\n" for i in range(400))
    )
    second = tmp_path / f"2.{suffix}"
    if suffix == "csv":
        rows = (f"{i}.0,{i % 2}\n" for i in range(400))
        second.write_text("customer,y\n" + "".join(rows))
    else:
        customers = pa.array(range(400), pa.float64())
        y = pa.array([i % 2 for i in range(400)])
        pq.write_table(pa.table({"customer": customers, "y": y}), second)
    examples = run(tmp_path / "*", SPLIT)
    train, evaluated = (
        {row["customer"][0] for row in examples.rows(split)}
        for split in ("train", "eval")
    )
    assert len(train | evaluated) == 400
    assert not train & evaluated


def test_a_file_that_turns_the_column_float_moves_no_row(run, tmp_path):
    def customers(split):
        return {int(row["customer"][0]) for row in run(pattern, SPLIT).rows(split)}

    pattern = tmp_path / "*.csv"
    rows = (f"{i},{i % 2}\n" for i in range(200))
    (tmp_path / "1.csv").write_text("customer,y\n" + "".join(rows))
    before = customers("train")
    (tmp_path / "2.csv").write_text("customer,y\n1000.5,1\n1001.0,0\n")
    assert before == customers("train") - {1000, 1001}


def _documented(*key: str) -> float:
    digest = hashlib.sha256("\x1f".join(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def test_keys_that_are_spelled_shortest_keep_their_side():
    """The keys of the flights, as files of any version were split by them."""
    tails = [f"N{n:03}{'ABC'[n % 3]}{'WX'[n % 2]}" for n in range(500)] + [None]
    dates = [(str(n % 12 + 1), str(n % 28 + 1)) for n in range(501)]
    months, days = zip(*dates, strict=True)
    batch = pa.RecordBatch.from_pydict(
        {"tail_number": tails, "month": months, "day": days}
    )
    kinds = {"tail_number": Kind.BYTES, "month": Kind.INT, "day": Kind.INT}
    found = Splitter(tuple(kinds), 8, 2).masks(batch, 0, "", 0, kinds, NULLS)
    rows = zip(tails, months, days, strict=True)
    expected = [_documented(t or "", m, d) < 0.8 for t, m, d in rows]
    assert found["train"].tolist() == expected
