"""Validates statistics against a schema as TFDV does, some columns at a time.

The time of TFDV grows with the square of the columns: for each feature of the
statistics, it searches all features of the schema.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatisticsList

_BLOCK = 100  # columns


def validate(
    statistics: Statistics,
    schema: schema_pb2.Schema,
    environment: str | None = None,
    **others: Statistics,
) -> anomalies_pb2.Anomalies:
    """Returns the anomalies that `tfdv.validate_statistics` finds.

    Args:
      statistics: The statistics to validate.
      schema: The schema.
      environment: An environment of the schema; default: none.
      **others: `previous_statistics`, `serving_statistics`: statistics to compare with.
    """
    every = [statistics, *others.values()]
    columns = {_name(x) for each in every for y in each.datasets for x in y.features}
    names = sorted(columns.union(feature.name for feature in schema.feature))
    composed = schema.sparse_feature or schema.weighted_feature  # of several columns
    if composed or len(names) <= _BLOCK or any(len(x.datasets) != 1 for x in every):
        return tfdv.validate_statistics(statistics, schema, environment, **others)
    anomalies = anomalies_pb2.Anomalies()
    for first in range(0, len(names), _BLOCK):
        block = frozenset(names[first : first + _BLOCK])
        each = tfdv.validate_statistics(
            _columns_of(statistics, block),
            _features_of(schema, block, with_dataset=not first),
            environment,
            **{name: _columns_of(other, block) for name, other in others.items()},
        )
        if first:
            each.ClearField("dataset_anomaly_info")
        anomalies.MergeFrom(each)
    anomalies.baseline.CopyFrom(schema)
    return anomalies


def _name(feature: statistics_pb2.FeatureNameStatistics) -> str:
    """The column of a feature; features of structs are part of a column."""
    return feature.path.step[0] if feature.path.step else feature.name


def _columns_of(statistics: Statistics, names: Collection[str]) -> Statistics:
    subset = Statistics()
    for dataset in statistics.datasets:
        part = subset.datasets.add(
            name=dataset.name,
            num_examples=dataset.num_examples,
            weighted_num_examples=dataset.weighted_num_examples,
        )
        part.features.extend(x for x in dataset.features if _name(x) in names)
    return subset


def _features_of(
    schema: schema_pb2.Schema, names: Collection[str], with_dataset: bool
) -> schema_pb2.Schema:
    """The part of a schema for some columns, and for the data set as a whole."""
    features = [feature for feature in schema.feature if feature.name in names]
    domains = {feature.domain for feature in features}
    part = schema_pb2.Schema(
        feature=features,
        string_domain=[x for x in schema.string_domain if x.name in domains],
        default_environment=schema.default_environment,
    )
    if with_dataset and schema.HasField("dataset_constraints"):
        part.dataset_constraints.CopyFrom(schema.dataset_constraints)
    return part
