"""A column without a value in one split stays an input, as with stock ExampleGen."""

from __future__ import annotations

import pyarrow as pa
import pytest

F = pa.list_(pa.float32())
NOTHING = pa.nulls(4, F)
SOME = pa.array([[1.5], None, [2.0], [3.0]], F)
FULL = pa.array([[1.5], [0.5], [2.0], [3.0]], F)


def inferred(folder, *columns):
    """The schema of one column `x` in two splits, and the anomalies of each split."""
    import tensorflow_data_validation as tfdv
    from tfx.types import artifact_utils, standard_artifacts

    from strategos.components.schema_file import read_schema
    from strategos.components.schema_gen.executor import Executor
    from strategos.components.statistics import generators

    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(folder / "statistics")
    statistics.split_names = '["train", "eval"]'
    found = []
    for split, column in zip(("train", "eval"), columns, strict=True):
        names = {"x": column, "y": FULL}
        found.append(generators.compute([pa.RecordBatch.from_pydict(names)]))
        path = artifact_utils.get_split_uri([statistics], split)
        (folder / path).mkdir(parents=True)
        (folder / path / "FeatureStats.pb").write_bytes(found[-1].SerializeToString())
    schema = standard_artifacts.Schema()
    schema.uri = str(folder / "schema")
    Executor().Do(
        {"statistics": [statistics]}, {"schema": [schema]}, {"infer_feature_shape": 1}
    )
    written = read_schema(f"{schema.uri}/schema.pbtxt")
    return written, [tfdv.validate_statistics(each, written) for each in found]


@pytest.mark.parametrize(
    "columns",
    [(NOTHING, SOME), (SOME, NOTHING), (FULL, NOTHING), (NOTHING, FULL)],
    ids=["none-some", "some-none", "full-none", "none-full"],
)
def test_a_column_without_a_value_in_one_split_is_an_input(tmp_path, columns):
    import tensorflow as tf

    from strategos.components.transform import raw

    schema, anomalies = inferred(tmp_path, *columns)
    found = raw.reader(raw.complete(schema)).TensorAdapter().OriginalTypeSpecs()
    assert found["x"] == tf.SparseTensorSpec([None, None], tf.float32)
    assert found["y"].shape == [None, 1]
    assert not any(each.anomaly_info for each in anomalies)


def test_other_columns_are_what_stock_infers(tmp_path):
    import tensorflow_data_validation as tfdv

    from strategos.components.statistics import generators

    for number, columns in enumerate([(SOME, FULL), (FULL, FULL), (NOTHING, NOTHING)]):
        (tmp_path / str(number)).mkdir()
        schema, _ = inferred(tmp_path / str(number), *columns)
        first, second = (
            generators.compute([pa.RecordBatch.from_pydict({"x": c, "y": FULL})])
            for c in columns
        )
        stock = tfdv.update_schema(tfdv.infer_schema(first, True), second, True)
        assert schema == stock
