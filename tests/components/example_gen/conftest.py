"""ExampleGen's executor and TFX's own, on real files and artifacts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@dataclasses.dataclass(frozen=True)
class Written:
    """The examples that an ExampleGen wrote, read by tf.data."""

    artifact: Any

    def features(self, split: str = "*") -> list[dict[str, tuple[str | None, list]]]:
        """Per row, by name: the kind of the feature's list, and its values."""
        import tensorflow as tf

        rows = []
        files = sorted(tf.io.gfile.glob(f"{self.artifact.uri}/Split-{split}/*"))
        for record in tf.data.TFRecordDataset(files, "GZIP").as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            rows.append({name: _read(feature) for name, feature in features.items()})
        return rows

    def rows(self, split: str = "*") -> list[dict[str, list]]:
        """Per row, by name: the values; none where the value is missing."""
        return [
            {name: values for name, (_, values) in row.items()}
            for row in self.features(split)
        ]

    def values(self, name: str) -> list[list]:
        return [row[name] for row in self.rows()]

    def report(self) -> list[str]:
        """The types in the run's report, without the count of missing values."""
        return [line for line in self.lines() if not line.startswith("missing values")]

    def lines(self) -> list[str]:
        """What the run's report says of the columns."""
        return self.artifact.get_string_custom_property("types").splitlines()


def _read(feature) -> tuple[str | None, list]:
    kind = feature.WhichOneof("kind")
    return kind, list(getattr(feature, kind).value) if kind else []


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Callable[..., Written]:
    """Runs our executor."""
    from tfx.types import standard_artifacts

    from strategos.components.example_gen import executor

    def call(pattern, split=None, spans=(), null_values=(), **properties) -> Written:
        examples = standard_artifacts.Examples()
        examples.uri = str(tmp_path_factory.mktemp("examples"))
        ratio = {"by": "ratio", "keys": [], "train": 8, "eval": 2}
        empty = ("fingerprint", "schema_file", "schema_fingerprint", "label", "stack")
        settings = {
            "pattern": str(pattern),
            "spans": json.dumps(spans),
            "split": json.dumps(split or ratio),
            "null_values": json.dumps(null_values),
            "unlabelled": "keep",
        }
        properties = dict.fromkeys(empty, "") | settings | properties
        executor.Executor().Do({}, {"examples": [examples]}, properties)
        return Written(examples)

    return call


@pytest.fixture(scope="session")
def run_stock(tmp_path_factory) -> Callable[[Path], Written]:
    """Runs TFX's CsvExampleGen on all files of a folder."""
    from tfx.components.example_gen.csv_example_gen import executor
    from tfx.proto import example_gen_pb2
    from tfx.types import standard_artifacts
    from tfx.utils import proto_utils

    def call(folder: Path) -> Written:
        examples = standard_artifacts.Examples()
        examples.uri = str(tmp_path_factory.mktemp("stock"))
        examples.split_names = '["train", "eval"]'
        splits = example_gen_pb2.SplitConfig()
        splits.splits.add(name="train", hash_buckets=8)
        splits.splits.add(name="eval", hash_buckets=2)
        single = example_gen_pb2.Input.Split(name="single", pattern="*")
        settings = {
            "input_config": example_gen_pb2.Input(splits=[single]),
            "output_config": example_gen_pb2.Output(split_config=splits),
        }
        properties = {
            "input_base": str(folder),
            "output_data_format": example_gen_pb2.FORMAT_TF_EXAMPLE,
            "output_file_format": example_gen_pb2.FORMAT_TFRECORDS_GZIP,
            **{k: proto_utils.proto_to_json(v) for k, v in settings.items()},
        }
        executor.Executor().Do({}, {"examples": [examples]}, properties)
        return Written(examples)

    return call
