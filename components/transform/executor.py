"""Analyzes the training split by TFT's analyzers; transforms all with TensorFlow."""

from __future__ import annotations

import json
from typing import Any

from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import types
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils, json_utils

from strategos.components import events
from strategos.components.files import listing
from strategos.components.records import FILE_FORMAT, columns, counts, emptiness, splits
from strategos.components.records.emptiness import Emptiness
from strategos.components.schema_file import read_schema
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.transform import analysis, missing, preprocessing
from strategos.components.transform.materialize import materialize
from strategos.components.transformed import sample, sparse_columns, unseen_labels
from strategos.components.user_code import modules, workload_paths

ANALYZED = "train"


class Executor(EngineExecutor):
    """Executor of Transform.

    TFX's executor sends each transformed row through Beam, which takes two thirds of
    its time.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the transform graph and the transformed examples.

        Raises:
          UserError: `preprocessing_fn` fails on this data.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        config = json_utils.loads(exec_properties["custom_config"])
        folder, module = workload_paths.user_module(config["user_module"])
        raw = input_dict["examples"]
        empty, fillings = _empty_cells(raw), config["missing"]
        required = {key: config[key] for key in ("label", "weight") if config.get(key)}
        function = preprocessing.load(
            folder, module, required, config["custom_config"], fillings, empty
        )
        (graph_artifact,) = output_dict["transform_graph"]
        graph_artifact.set_string_custom_property(
            "module_file", str(modules.find(folder, module) or module)
        )
        graph = graph_artifact.uri
        schema = _schema(input_dict["schema"])
        schema = missing.of_varying_length(schema, fillings, empty)
        events.emit("progress", message="analyzing")
        files, contents = _files(raw, ANALYZED), _contents(raw)
        analysis.analyze(self._engine, function, files, schema, graph, contents)
        events.emit("progress", message="transforming")
        transformed = output_dict["transformed_examples"]
        uri = artifact_utils.get_single_uri(transformed)
        names = artifact_utils.decode_split_names(raw[0].split_names)
        progress.begin(_rows(raw))
        by_split = {split: _files(raw, split) for split in names}
        rows = materialize(self._engine, graph, by_split, uri)
        progress.end(sum(rows.values()))
        for split, count in rows.items():
            expected = counts.recorded(raw, split)
            counts.check(f"{raw[0].uri}/Split-{split}", count, expected)
            counts.record(transformed[0], split, count)
        sampled = splits.evaluated(names)
        records = [file for each in raw for file in _records(each, sampled)]
        sample.write(graph, records)
        sparse_columns.write(graph, empty)
        unseen = raw[0].get_string_custom_property("unseen_labels")
        unseen_labels.write(graph, json.loads(unseen or "{}"))
        _describe(transformed[0], names)


def _schema(schema: list[types.Artifact]) -> schema_pb2.Schema:
    file = io_utils.get_only_uri_in_dir(artifact_utils.get_single_uri(schema))
    return read_schema(file)


def _files(raw: list[types.Artifact], split: str) -> list[str]:
    """The files of a split: of its columns, where ExampleGen wrote them."""
    return [
        file
        for artifact in raw
        for file in columns.files(artifact.uri, split) or _records(artifact, split)
    ]


def _records(artifact: types.Artifact, split: str) -> list[str]:
    return listing.listed(artifact_utils.get_split_uri([artifact], split))


def _contents(raw: list[types.Artifact]) -> dict[str, str]:
    """By file, the digest of its content, if the orchestrator recorded it."""
    recorded = [artifact.get_string_custom_property("content") for artifact in raw]
    return {
        f"{artifact.uri}/{name}": digest
        for artifact, text in zip(raw, recorded, strict=True)
        for name, digest in json.loads(text or "{}").items()
    }


def _empty_cells(raw: list[types.Artifact]) -> dict[str, Emptiness]:
    """The columns without a value in some rows, if ExampleGen recorded them."""
    return {
        name: cells
        for artifact in raw
        for name, cells in emptiness.from_json(
            artifact.get_string_custom_property("empty_cells")
        ).items()
    }


def _rows(raw: list[types.Artifact]) -> int | None:
    """Number of all raw examples, if ExampleGen recorded it."""
    rows = [artifact.get_int_custom_property("rows") for artifact in raw]
    return sum(rows) if all(rows) else None


def _describe(transformed: types.Artifact, names: list[str]) -> None:
    transformed.split_names = artifact_utils.encode_split_names(names)
    examples_utils.set_payload_format(
        transformed, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    )
    examples_utils.set_file_format(transformed, FILE_FORMAT)
