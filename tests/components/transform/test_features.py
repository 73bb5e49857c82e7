"""The output of Transform, compared with TFX's own Transform by value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from strategos.components.user_code import modules

pytestmark = pytest.mark.long

ROWS = 48


def _raw(number: int) -> dict[str, list[Any]]:
    """A row of every kind; some without values."""
    keys = [b"a", b"b", "\u00e9t\u00e9 \U0001f600".encode(), b"c"]
    texts = [
        b"good old words",
        b"",
        "na\u00efve caf\u00e9 good".encode(),
        b"good  good\tsecond",
        b"x",
        b"\xff\xfe",
    ]
    specials = [math.nan, math.inf, -math.inf, -0.0, 1e-38, 3.4e38, 0.5]
    bigs = [2**63 - 1, -(2**63), 0, -1, 1]
    several = number % 4
    lengths = [number % 3, 0, 2][: number % 4]
    return {
        "row": [number],
        "x": [math.sin(number) * 10],
        "special": [specials[number % 7]],
        "matrix": [math.cos(number * 6 + i) for i in range(6)],
        "n": [number % 7],
        "big": [bigs[number % 5]],
        "key": [keys[number % 4]],
        "text": [texts[number % 6]],
        "maybe": [] if number % 3 == 0 else [number / 3],
        "maybe_key": [] if number % 5 == 0 else [keys[number % 3]],
        "tokens": [keys[(number + i * i) % 4] for i in range(several)],
        "rag_flat": [texts[(number + i) % 6] for i in range(several)],
        "flat": list(range(number, number + sum(lengths))),
        "lengths": lengths,
        "pairs_flat": [number + i / 4 for i in range(2 * several)],
        "at": [i * 3 for i in range(several)],
        "of": [number + i / 2 for i in range(several)],
    }


def _example(row: Mapping[str, list[Any]]) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    for name, values in row.items():
        feature = example.features.feature[name]
        kind = {"big": "int64_list", "n": "int64_list"}.get(name)
        if values and kind is None:
            kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
            kind = kinds[type(values[0])]
        if kind:
            getattr(feature, kind).value.extend(values)
    return example.SerializeToString()


def _values(serialized: bytes) -> dict[str, list[Any]]:
    import tensorflow as tf

    example = tf.train.Example.FromString(serialized)
    return {
        name: list(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
        for name, feature in example.features.feature.items()
    }


def _rows(folder: Path) -> list[dict[str, list[Any]]]:
    """The examples of the train split in `folder`, by their number."""
    import tensorflow as tf

    files = sorted(map(str, folder.glob("Split-train/*.gz")))
    records = tf.data.TFRecordDataset(files, "GZIP")
    return sorted(map(_values, records.as_numpy_iterator()), key=itemgetter("row"))


def _write_columns(raw: Path) -> None:
    """Writes the columns of the train split too, as ExampleGen does."""
    import pyarrow as pa

    from strategos.components.records import columns, streams
    from strategos.components.records.write import publish
    from strategos.components.statistics_gen.executor import read_batches

    small = {pa.large_binary(): pa.binary()}
    writer = columns.ColumnWriter(str(raw), 0)
    for batch in read_batches([str(raw / "Split-train" / "data-0.gz")]):
        kinds = [getattr(each.type, "value_type", pa.binary()) for each in batch]
        lists = [
            each.cast(pa.list_(small.get(kind, kind)))
            for each, kind in zip(batch, kinds, strict=True)
        ]
        writer.write(pa.RecordBatch.from_arrays(lists, batch.schema.names))
    folder = streams.folder("train")
    publish(str(raw), folder, writer.close(), "columns", streams.SUFFIX)


def _transform_by_tfx(workload, module: str) -> Path:
    """Transforms the same rows with TFX's own Transform; returns the output folder."""
    from tfx.components.transform.executor import Executor
    from tfx.dsl.components.base import base_beam_executor
    from tfx.types import standard_artifacts

    def artifact(kind, name):
        made = kind()
        made.uri = str(workload.root / name)
        return [made]

    raw = artifact(standard_artifacts.Examples, "raw")
    raw[0].split_names = '["train"]'
    modules.activate(workload.folder)
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    context = base_beam_executor.BaseBeamExecutor.Context(
        beam_pipeline_args=[f"--runner={runner}", "--requirements_file=/dev/null"],
        tmp_dir=str(workload.root / "tmp"),
    )
    _complete(workload)
    Executor(context).Do(
        {"examples": raw, "schema": artifact(standard_artifacts.Schema, "schema")},
        {
            "transform_graph": artifact(standard_artifacts.TransformGraph, "by_tfx"),
            "transformed_examples": artifact(standard_artifacts.Examples, "of_tfx"),
        },
        {
            "preprocessing_fn": f"{module}.preprocessing_fn",
            "disable_statistics": 1,
            "force_tf_compat_v1": 0,
        },
    )
    return workload.root / "of_tfx"


def _complete(workload) -> None:
    """Adds the missing representations: TFX 1.16 requires all or none."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.public import tfxio

    text = Path(workload.schema).read_text()
    schema = text_format.Parse(text, schema_pb2.Schema())
    found = tfxio.TFExampleRecord(
        [workload.schema], schema=schema
    ).TensorRepresentations()
    group = schema.tensor_representation_group[""].tensor_representation
    for name, representation in found.items():
        group[name].CopyFrom(representation)
    Path(workload.schema).write_text(text_format.MessageToString(schema))


@pytest.fixture(scope="module")
def transformed(workload_in, transform, tmp_path_factory):
    """Makes the rows of a module's features, by our Transform and by TFX's."""
    import tensorflow as tf

    def make(module: str):
        workload = workload_in(tmp_path_factory.mktemp("features"), "features")
        for split, rows in (("train", ROWS), ("eval", 3)):
            folder = workload.root / "raw" / f"Split-{split}"
            folder.mkdir(parents=True)
            with tf.io.TFRecordWriter(str(folder / "data-0.gz"), "GZIP") as writer:
                for number in range(rows):
                    writer.write(_example(_raw(number)))
        _write_columns(workload.root / "raw")
        transform(workload, module, "")
        ours = _rows(workload.root / "transformed")
        return ours, _rows(_transform_by_tfx(workload, module))

    return make


@pytest.mark.parametrize(
    "module",
    [
        # A minute each: dozens of analyzers, through Beam twice.
        pytest.param("of_numbers", marks=pytest.mark.faults),
        pytest.param("of_text", marks=pytest.mark.faults),
        "of_shapes",
    ],
)
def test_features_equal_those_of_tfx_row_by_row(transformed, module):
    ours, expected = transformed(module)
    assert len(ours) == len(expected) == ROWS
    different = {}
    for row, (found, wanted) in enumerate(zip(ours, expected, strict=True)):
        for name in found.keys() | wanted.keys():
            pair = found.get(name), wanted.get(name)
            if not _equal(*pair):
                different.setdefault(name, (row, *pair))
    assert not different


def _equal(found: list[Any] | None, wanted: list[Any] | None) -> bool:
    import numpy as np

    if not found or not wanted or not isinstance(found[0], float):
        return found == wanted
    return np.allclose(found, wanted, rtol=1e-5, atol=1e-6, equal_nan=True)
