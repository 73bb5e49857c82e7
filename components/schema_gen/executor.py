"""Infers a schema by TFX's executor; keeps columns without a value in one split.

TFDV infers the schema of one split and updates it by the next. A column without any
value in one split then becomes DEPRECATED, and TFT leaves it out of the inputs.
With the empty lists that TFX's CsvExampleGen writes in place of missing values, the
column stays; here a missing value is a feature without a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tfx import types
from tfx.components.schema_gen import executor as stock
from tfx.components.statistics_gen import stats_artifact_utils
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.schema_file import read_schema


class Executor(stock.Executor):
    """TFX's executor, with a correction of the schema that it writes."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the schema of the statistics."""
        super().Do(input_dict, output_dict, exec_properties)
        folder = artifact_utils.get_single_uri(output_dict["schema"])
        file = io_utils.get_only_uri_in_dir(folder)
        schema = read_schema(file)
        artifact = artifact_utils.get_single_instance(input_dict["statistics"])
        splits = artifact_utils.decode_split_names(artifact.split_names)
        statistics = [
            stats_artifact_utils.load_statistics(artifact, split).proto()
            for split in splits
        ]
        if keep_columns(schema, statistics):
            io_utils.write_pbtxt_file(file, schema)


def keep_columns(
    schema: schema_pb2.Schema,
    statistics: Iterable[statistics_pb2.DatasetFeatureStatisticsList],
) -> bool:
    """Turns features that an update has made DEPRECATED into optional ones.

    Args:
      schema: Inferred from `statistics`; changed in place.
      statistics: Statistics of the splits.

    Returns:
      Whether a feature was changed.
    """
    gone = [
        feature
        for feature in schema.feature
        if feature.lifecycle_stage == schema_pb2.DEPRECATED
    ]
    types_of = {
        each.path.step[0]: statistics_pb2.FeatureNameStatistics.Type.Name(each.type)
        for split in statistics
        for each in split.datasets[0].features
        if getattr(each, each.WhichOneof("stats")).common_stats.num_non_missing
    }
    for feature in gone:
        feature.ClearField("lifecycle_stage")
        feature.ClearField("shape")
        feature.presence.Clear()
        feature.presence.min_count = 0
        kind = types_of.get(feature.name, "STRING")
        feature.type = schema_pb2.FeatureType.Value({"STRING": "BYTES"}.get(kind, kind))
    return bool(gone)
