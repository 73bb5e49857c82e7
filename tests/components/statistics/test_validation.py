"""Validation of some columns at a time finds what TFDV finds in all of them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from strategos.components.statistics import generators, validation


def statistics(columns, seed, new=0):
    """Statistics of columns of all types, some missing in some rows."""
    draw, rows = random.Random(seed), 30
    kinds = (
        lambda: draw.randrange(20 + new),
        lambda: draw.gauss(new, 1),
        lambda: b"w%d" % draw.randrange(5 + new),
        lambda: draw.choice([None, 1, 2]),
    )
    found = {}
    for number in range(columns):
        values = [kinds[(number + new) % 9 % 4]() for _ in range(rows)]
        found[f"c{number}"] = [None if v is None else [v] for v in values]
    return generators.compute([pa.RecordBatch.from_pydict(found)])


def schema_of(found, seed):
    """The inferred schema, with changes that make anomalies of all kinds."""
    import tensorflow_data_validation as tfdv

    draw, schema = random.Random(seed), tfdv.infer_schema(found)
    for feature in list(schema.feature):
        if draw.random() < 0.1:
            schema.feature.remove(feature)
            continue
        if draw.random() < 0.2:
            feature.int_domain.max = 3
        if draw.random() < 0.2:
            feature.presence.min_count = 1000
        if draw.random() < 0.5:
            feature.drift_comparator.jensen_shannon_divergence.threshold = 0.1
        if draw.random() < 0.5:
            feature.skew_comparator.infinity_norm.threshold = 0.01
        if draw.random() < 0.3:
            feature.in_environment.append("serving")
    schema.default_environment.extend(["training", "serving"])
    schema.dataset_constraints.min_examples_count = 1000
    return schema


@pytest.mark.parametrize("compared", [(), ("previous_statistics",), "all"])
@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(None, marks=pytest.mark.long),
        "training",
        pytest.param("serving", marks=pytest.mark.long),
    ],
)
def test_anomalies_equal_those_of_all_columns_at_once(
    environment, compared, monkeypatch
):
    import tensorflow_data_validation as tfdv

    if compared == "all":
        compared = "previous_statistics", "serving_statistics"
    monkeypatch.setattr(validation, "_BLOCK", 7)
    for seed in range(4):
        found = statistics(40, seed, seed)
        schema = schema_of(statistics(35, seed), seed)
        others = {name: statistics(38, len(name), 1) for name in compared}
        stock = tfdv.validate_statistics(found, schema, environment, **others)
        assert validation.validate(found, schema, environment, **others) == stock
        assert stock.anomaly_info
        assert stock.HasField("dataset_anomaly_info")
        assert bool(stock.drift_skew_info) == bool(compared)


def test_features_of_several_columns_and_data_without_rows(monkeypatch):
    import tensorflow_data_validation as tfdv
    from tensorflow_metadata.proto.v0 import schema_pb2

    monkeypatch.setattr(validation, "_BLOCK", 7)
    found, empty = statistics(20, 0), generators.compute([])
    schema = schema_of(found, 0)
    for each in (empty, found):
        stock = tfdv.validate_statistics(each, schema)
        assert validation.validate(each, schema) == stock
    sparse = schema_pb2.SparseFeature(name="s")
    sparse.index_feature.add(name="c0")
    sparse.value_feature.name = "c19"
    schema.sparse_feature.append(sparse)
    assert validation.validate(found, schema) == tfdv.validate_statistics(found, schema)
