"""Data that components read and write on an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROWS = 60_000


@pytest.fixture
def table(tmp_path, make_table):
    """A CSV file with text, floats with missing values, and a column of many words."""
    return make_table(tmp_path / "data")


@pytest.fixture(scope="session")
def make_table():
    """Makes `table` in a folder."""

    def make(folder):
        words = ("ä" * (n % 40) for n in range(ROWS))
        numbers = (f"{n % 977},{n / 7 if n % 9 else ''}" for n in range(ROWS))
        rows = map(",".join, zip(numbers, words, strict=True))
        path = folder / "a.csv"
        folder.mkdir()
        path.write_text("\n".join(["key,x,text", *rows, ""]))
        return path

    return make


@pytest.fixture
def written() -> Callable[[Any], dict[str, bytes]]:
    """Reads all files of a folder, by their names below it."""

    def read(uri):
        files = (path for path in Path(uri).rglob("*") if path.is_file())
        return {str(path.relative_to(uri)): path.read_bytes() for path in files}

    return read


@pytest.fixture
def write_examples() -> Callable[..., Any]:
    """Runs ExampleGen on the engine of the environment."""
    from tfx.types import standard_artifacts

    from strategos.components.example_gen import executor

    def write(table, uri, by="ratio"):
        names = ("fingerprint", "schema_file", "schema_fingerprint")
        names += ("label", "stack", "unlabelled")
        keys = ["key"] if by == "hash" else []
        properties = dict.fromkeys(names, "") | {
            "pattern": str(table),
            "spans": "[]",
            "null_values": "[]",
            "split": json.dumps({"by": by, "keys": keys, "train": 8, "eval": 2}),
        }
        examples = standard_artifacts.Examples()
        examples.uri = str(uri)
        executor.Executor().Do({}, {"examples": [examples]}, properties)
        return examples

    return write


@pytest.fixture
def write_statistics() -> Callable[..., Any]:
    """Runs StatisticsGen on the engine of the environment."""
    from tfx.types import standard_artifacts

    from strategos.components.statistics_gen import executor

    def write(examples, uri, **properties):
        statistics = standard_artifacts.ExampleStatistics()
        statistics.uri = str(uri)
        executor.Executor().Do(
            {"examples": [examples]}, {"statistics": [statistics]}, properties
        )
        return statistics

    return write
