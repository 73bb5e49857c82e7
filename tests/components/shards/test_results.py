"""What components write does not depend on the engine, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strategos.components.shards.engine import Engine

ROWS = 60_000


@pytest.fixture
def table(tmp_path):
    """A CSV file with text, floats with missing values, and a column of many words."""
    rows = (f"{n % 977},{n / 7 if n % 9 else ''},{'ä' * (n % 40)}" for n in range(ROWS))
    path = tmp_path / "data" / "a.csv"
    path.parent.mkdir()
    path.write_text("\n".join(["key,x,text", *rows, ""]))
    return path


def written(uri: str) -> dict[str, bytes]:
    files = (path for path in Path(uri).rglob("*") if path.is_file())
    return {str(path.relative_to(uri)): path.read_bytes() for path in files}


@pytest.mark.parametrize("split", ["ratio", "hash"])
def test_examples_and_statistics_are_the_same_for_any_number_of_threads(
    table, tmp_path, monkeypatch, split
):
    from tfx.types import standard_artifacts

    from strategos.components.example_gen import executor as example_gen
    from strategos.components.example_gen import shards
    from strategos.components.statistics_gen import executor as statistics_gen

    monkeypatch.setattr(shards, "_LEAST_BYTES", table.stat().st_size // 8)
    names = ("fingerprint", "schema_file", "schema_fingerprint", "label", "stack")
    keys = ["key"] if split == "hash" else []
    properties = dict.fromkeys(names, "") | {
        "pattern": str(table),
        "spans": "[]",
        "null_values": "[]",
        "split": json.dumps({"by": split, "keys": keys, "train": 8, "eval": 2}),
    }
    found = []
    for workers in (1, 2, 5):
        (variable,) = Engine(workers=workers).to_environment().items()
        monkeypatch.setenv(*variable)
        examples = standard_artifacts.Examples()
        statistics = standard_artifacts.ExampleStatistics()
        examples.uri = str(tmp_path / f"examples-{workers}")
        statistics.uri = str(tmp_path / f"statistics-{workers}")
        example_gen.Executor().Do({}, {"examples": [examples]}, dict(properties))
        statistics_gen.Executor().Do(
            {"examples": [examples]}, {"statistics": [statistics]}, {}
        )
        found.append((written(examples.uri), written(statistics.uri)))
    assert len(found[0][0]) == 4 * 8  # examples and columns of two splits, by shard
    assert found[0] == found[1] == found[2]


def test_transformed_rows_are_the_same_for_any_number_of_threads(tmp_path):
    import tensorflow as tf
    import tensorflow_transform as tft
    from tensorflow_metadata.proto.v0 import schema_pb2

    from strategos.components.transform import analysis
    from strategos.components.transform.materialize import materialize

    schema = schema_pb2.Schema()
    feature = schema.feature.add(name="x", type=schema_pb2.FLOAT)
    feature.presence.min_fraction = 1
    feature.shape.dim.add(size=1)
    files = []
    for number in range(9):
        files.append(str(tmp_path / f"{number}.gz"))
        with tf.io.TFRecordWriter(files[-1], "GZIP") as writer:
            for row in range(500):
                example = tf.train.Example()
                example.features.feature["x"].float_list.value.append(
                    row / (number + 1)
                )
                writer.write(example.SerializeToString())
    graph = str(tmp_path / "graph")

    def scale(inputs):
        return {"x": tft.scale_to_z_score(inputs["x"])}

    analysis.analyze(Engine(), scale, files, schema, graph)
    found = []
    for workers in (1, 2, 5):
        uri = str(tmp_path / f"transformed-{workers}")
        materialize(Engine(workers=workers), graph, {"train": files}, uri)
        found.append(written(uri))
    assert len(found[0]) == 9
    assert found[0] == found[1] == found[2]
