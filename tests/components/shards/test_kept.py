"""Results in files: what is written, read and removed."""

from __future__ import annotations

import os
import pickle
import threading
from fractions import Fraction

import numpy as np
import pytest

from strategos.components.shards import kept

FORMAT = kept.Format(1, kept.ARRAYS, most_files=4, most_bytes=3_000)


@pytest.mark.parametrize(
    "result",
    [
        {"a": np.arange(6.0).reshape(2, 3), "b": [np.float32(1.5), None, b"x", ("y",)]},
        np.array([b"long text", "ü", None], object),
        {1: np.zeros((0, 2), np.int8), "f": np.asfortranarray(np.eye(3))},
    ],
    ids=["numbers", "objects", "shapes"],
)
def test_results_of_known_classes_are_read_as_they_were_written(tmp_path, result):
    FORMAT.write(tmp_path / "made" / "a", result, 1_000)
    found = FORMAT.read(tmp_path / "made" / "a")
    assert pickle.dumps(found) == pickle.dumps(result)


@pytest.mark.parametrize(
    "result",
    [Fraction(1, 2), [max], {"a": FORMAT}, threading.Lock(), np.zeros(500)],
    ids=lambda result: type(result).__name__,
)
def test_results_of_other_classes_and_large_ones_are_not_written(tmp_path, result):
    FORMAT.write(tmp_path / "a", result, 1_000)
    assert list(tmp_path.iterdir()) == []
    assert FORMAT.read(tmp_path / "a") is None


@pytest.mark.parametrize(
    ("size", "left"), [(1, {"2", "3", "4", "5"}), (800, {"3", "4", "5"})]
)
def test_the_results_that_were_used_last_stay(tmp_path, size, left):
    for number in range(6):
        FORMAT.write(tmp_path / str(number), b"x" * size, 1_000)
        os.utime(tmp_path / str(number), (number, number))
    FORMAT.prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == left
    FORMAT.read(tmp_path / "3")
    for name in ("new", "newer"):
        FORMAT.write(tmp_path / name, b"x" * size, 1_000)
    FORMAT.prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"3", "new", "newer"}
    FORMAT.prune(tmp_path / "missing")
