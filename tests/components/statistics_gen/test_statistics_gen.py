"""StatisticsGen: the same numbers as TFDV's own pipeline."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

ROWS = 3000


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """An Examples artifact with missing, multivalent and binary features."""
    from tfx.types import standard_artifacts

    from strategos.components.data_files.values.features import convert
    from strategos.components.data_files.values.kinds import Kind
    from strategos.components.records.encode import serialize
    from strategos.components.records.write import ShardWriter, publish

    artifact = standard_artifacts.Examples()
    artifact.uri = str(tmp_path_factory.mktemp("examples"))
    artifact.split_names = '["train", "eval"]'
    artifact.span = 7
    for seed, (split, rows) in enumerate([("train", ROWS), ("eval", 10)]):
        draw = random.Random(seed)
        batch = pa.RecordBatch.from_pydict(
            {
                "name": [
                    draw.choice([None, "a", "b", "ü", "z" * 9]) for _ in range(rows)
                ],
                "id": [f"{draw.random()}" for _ in range(rows)],
                "age": draw.choices([None, *range(-5, 50)], k=rows),
                "score": [draw.choice([None, draw.gauss(0, 9)]) for _ in range(rows)],
                "tags": [
                    draw.choices(["x", "y", "z"], k=draw.randrange(4))
                    for _ in range(rows)
                ],
                "image": [b"\x89PNG\xff" + draw.randbytes(20) for _ in range(rows)],
                "void": pa.nulls(rows).to_pylist(),
            }
        )
        kinds = dict.fromkeys(batch.schema.names, Kind.BYTES)
        kinds.update(age=Kind.INT, score=Kind.FLOAT)
        writer = ShardWriter(artifact.uri)
        writer.write(serialize(convert(batch, kinds)))
        publish(artifact.uri, f"Split-{split}", writer.close())
    return artifact


@pytest.fixture(scope="module")
def statistics(examples, tmp_path_factory):
    """The statistics of our executor."""
    from tfx.types import standard_artifacts

    from strategos.components.statistics_gen import executor

    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(tmp_path_factory.mktemp("statistics"))
    executor.Executor().Do(
        {"examples": [examples]}, {"statistics": [artifact]}, {"exclude_splits": "[]"}
    )
    return artifact


def by_name(statistics):
    (dataset,) = statistics.datasets
    return {feature.path.step[0]: feature for feature in dataset.features}


def test_artifact_is_laid_out_as_the_stock_one(statistics):
    from tfx.components.statistics_gen import stats_artifact_utils

    assert statistics.split_names == '["train", "eval"]'
    assert statistics.span == 7
    for split, rows in (("train", ROWS), ("eval", 10)):
        loaded = stats_artifact_utils.load_statistics(statistics, split).proto()
        assert loaded.datasets[0].num_examples == rows


def test_exact_parts_equal_those_of_tfdv(examples, statistics):
    import tensorflow_data_validation as tfdv
    from tfx.components.statistics_gen import stats_artifact_utils

    ours = stats_artifact_utils.load_statistics(statistics, "train").proto()
    theirs = tfdv.generate_statistics_from_tfrecord(
        f"{examples.uri}/Split-train/*", stats_options=tfdv.StatsOptions()
    )
    assert ours.datasets[0].num_examples == theirs.datasets[0].num_examples
    assert_equal(ours, theirs)


def assert_equal(ours, theirs, median=1.0):
    """By feature, but for sketches; medians differ by at most `median`."""
    ours, theirs = by_name(ours), by_name(theirs)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        found, wanted = ours[name].num_stats, expected.num_stats
        assert exact(ours[name]) == exact(expected), name
        assert found.mean == pytest.approx(wanted.mean)
        assert found.std_dev == pytest.approx(wanted.std_dev)
        assert found.median == pytest.approx(wanted.median, abs=median)


def exact(feature):
    """A copy without values that depend on sketches or on the order of sums."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    copy = statistics_pb2.FeatureNameStatistics()
    copy.CopyFrom(feature)
    for common in (copy.num_stats.common_stats, copy.string_stats.common_stats):
        common.ClearField("num_values_histogram")
    for field in ("mean", "std_dev", "median", "histograms"):
        copy.num_stats.ClearField(field)
    return copy


@pytest.mark.parametrize("most", [1, 7, 100, 1 << 21])
def test_rows_of_many_values_come_some_at_a_time(monkeypatch, most):
    from tensorflow_data_validation import StatsOptions
    from tensorflow_data_validation.statistics import stats_impl

    from strategos.components.statistics import generators

    monkeypatch.setattr(generators, "_VALUES", most)
    draw = random.Random(most)

    def lists(value):
        return [
            None if draw.random() < 0.1 else [value() for _ in range(draw.randrange(9))]
            for _ in range(200)
        ]

    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(lists(lambda: draw.randrange(256)), pa.large_list(pa.int64())),
            pa.array(lists(draw.random), pa.large_list(pa.float32())),
            pa.array(
                lists(lambda: b"ab"[: draw.randrange(3)]), pa.large_list(pa.binary())
            ),
            pa.nulls(200),
        ],
        ["pixels", "floats", "texts", "nothing"],
    )
    batches = [batch, batch.slice(0, 0), batch.slice(50, 120)]
    ours = generators.compute(batches)
    theirs = stats_impl.generate_statistics_in_memory(
        pa.Table.from_batches(batches).combine_chunks().to_batches()[0], StatsOptions()
    )
    assert ours.datasets[0].num_examples == theirs.datasets[0].num_examples == 320
    assert_equal(ours, theirs)


def test_values_counted_over_many_batches():
    from tensorflow_data_validation import StatsOptions

    from strategos.components.statistics import top_values

    generator = top_values.TopValuesGenerator(StatsOptions(num_top_values=2))
    accumulator = generator.create_accumulator()
    for start in range(0, 60_000, 5_000):
        values = [[f"{i % 25_000}".encode()] for i in range(start, start + 5_000)]
        batch = pa.RecordBatch.from_arrays([pa.array(values)], ["x"])
        accumulator = generator.add_input(accumulator, batch)
    merged = generator.merge_accumulators([accumulator, {}])
    (feature,) = generator.extract_output(merged).features
    assert feature.string_stats.unique == 25_000
    top = [(v.value, v.frequency) for v in feature.string_stats.top_values]
    assert top == [("9999", 3), ("9998", 3)]


def test_options_go_to_the_stock_executor(examples, tmp_path):
    import tensorflow_data_validation as tfdv
    from tfx.components.statistics_gen import stats_artifact_utils
    from tfx.types import standard_artifacts

    from strategos.components.statistics_gen import executor

    artifact = standard_artifacts.ExampleStatistics()
    artifact.uri = str(tmp_path)
    options = tfdv.StatsOptions(feature_allowlist=["age"])
    executor.Executor().Do(
        {"examples": [examples]},
        {"statistics": [artifact]},
        {"exclude_splits": '["train"]', "stats_options_json": options.to_json()},
    )
    loaded = stats_artifact_utils.load_statistics(artifact, "eval").proto()
    assert list(by_name(loaded)) == ["age"]


def odd_table(rows=900):
    """Missing, empty and several values; extremes of each type."""
    draw = random.Random(5)
    texts, pairs = pa.list_(pa.string()), pa.list_(pa.float64(), 2)

    def column(*cells):
        return [draw.choice(cells) for _ in range(rows)]

    return pa.table(
        {
            "i": column(1, -(2**62), None),
            "full": pa.array(column(1, 2, 3), pa.int8()),
            "f": column(0.5, float("nan"), float("inf"), -0.0, None),
            "s": column("ü", "a b", "", None),
            "tags": pa.array(column(["x"], ["y", ""], [], None), texts),
            "vector": pa.array(column([0.5, 1.5], [2.5, 3.5]), pairs),
            "image": column(b"\x00\xff", b"", None),
            "void": pa.nulls(rows),
        }
    )


def test_columns_beside_the_examples_are_those_of_the_examples(tmp_path):
    """What ExampleGen wrote as columns, and the decoded tf.Examples, value by value."""
    import pyarrow.parquet as pq
    from tfx.types import standard_artifacts

    from strategos.components.example_gen import executor
    from strategos.components.records import columns
    from strategos.components.statistics_gen.executor import read_batches

    pq.write_table(odd_table(), tmp_path / "a.parquet", row_group_size=200)
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "examples")
    names = ("fingerprint", "schema_file", "schema_fingerprint", "label", "stack")
    properties = dict.fromkeys(names, "") | {
        "pattern": f"{tmp_path}/*.parquet",
        "spans": "[]",
        "null_values": "[]",
        "unlabelled": "keep",
        "split": '{"by": "ratio", "keys": [], "train": 8, "eval": 2}',
    }
    executor.Executor().Do({}, {"examples": [examples]}, properties)
    for split in ("train", "eval"):
        (by_column,) = columns.files(examples.uri, split)
        (by_row,) = (tmp_path / "examples" / f"Split-{split}").iterdir()
        found = pa.Table.from_batches(columns.read([by_column])).combine_chunks()
        expected = pa.Table.from_batches(read_batches([str(by_row)])).combine_chunks()
        expected = expected.select(found.schema.names)
        assert found.schema == expected.schema
        assert str(found.to_pylist()) == str(expected.to_pylist())
        assert found.num_rows > 100
