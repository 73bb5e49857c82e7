"""Reads the spans' files and writes their rows as tf.Examples, in their splits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tfx import types
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from strategos.components import events
from strategos.components.data_files import (
    columns,
    inference,
    shards,
    spans,
)
from strategos.components.data_files.findings import rejected
from strategos.components.data_files.inference import Profile
from strategos.components.data_files.pieces import Shard
from strategos.components.data_files.sources import Reading, Source
from strategos.components.data_files.splitting import Splitter
from strategos.components.data_files.values import numerals
from strategos.components.data_files.values.kinds import Kind
from strategos.components.data_files.writing import Outcome, WriteShard
from strategos.components.errors import UserError
from strategos.components.example_gen import unchanged
from strategos.components.records import FILE_FORMAT, counts, emptiness
from strategos.components.shards import progress
from strategos.components.shards.executor import EngineExecutor
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.components.wording import counted, first

_FILES_RECORDED = 50


class Executor(EngineExecutor):
    """Reads shards of the data and writes shards of examples.

    Memory does not grow with the data.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the `examples` artifact; see `component.ExampleGen`.

        Raises:
          UserError: The data cannot be converted to examples; the message names the
            file and the row.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        here = WorkloadPaths.from_environment()
        pattern = exec_properties["pattern"] or here.examples
        chosen = spans.resolve_spans(pattern, json.loads(exec_properties["spans"]))
        watch = unchanged.Watch(chosen, exec_properties["fingerprint"])
        reading = Reading.from_json(exec_properties.get("reading", ""))
        files = shards.open_files(chosen, reading)
        splitter = Splitter.from_json(
            exec_properties["split"], [span.number for span in chosen]
        )
        for _, file in files:
            if not file.open_ended:
                splitter.check(file.path, file.names)
        (artifact,) = output_dict["examples"]
        artifact.split_names = artifact_utils.encode_split_names(list(splitter.splits))
        runner = shards.ShardRunner(self._engine, artifact.uri)
        null_values = tuple(json.loads(exec_properties["null_values"]))
        nulls = numerals.Nulls(null_values, reading.csv.decimal)
        kinds = _declared([file for _, file in files], exec_properties)
        data = runner.cut(pattern, files)
        profiles: dict[str, Profile] = {}
        if kinds is None:
            events.emit("progress", message="inferring types")
            data, profiles = runner.inspect(data, nulls)
            kinds = columns.inferred([file for _, file in files], profiles)
        elif splitter.by_position:
            data = runner.count(data)
        splitter.check(pattern, tuple(kinds))
        if splitter.times is not None and splitter.times.needs_newest:
            newest = runner.newest(data, splitter.times)
            times = dataclasses.replace(splitter.times, newest=newest)
            splitter = dataclasses.replace(splitter, times=times)
        work = WriteShard(
            examples=artifact.uri,
            kinds=kinds,
            floats=inference.witnesses(profiles, Kind.FLOAT),
            nulls=nulls,
            splitter=splitter,
            label=exec_properties["label"],
            lists=_lists([file for _, file in files], kinds, profiles),
            drops_unlabelled=exec_properties["unlabelled"] == "drop",
        )
        outcome = _write(runner, data, work, reading.max_bad_fraction)
        watch.check()
        _describe(artifact, pattern, chosen, outcome)
        empty = outcome.empty.found()
        artifact.set_string_custom_property("empty_cells", emptiness.to_json(empty))
        unseen = json.dumps(outcome.unseen_labels())
        artifact.set_string_custom_property("unseen_labels", unseen)
        report = inference.describe(profiles) + outcome.changed_numbers()
        report += emptiness.describe(empty)
        if outcome.rejected.rows:
            report.append(
                f"rejected: {counted(outcome.rejected.rows, 'row')} that cannot be "
                f"read, in `{rejected.FOLDER}` of the examples; the first one: "
                f"{outcome.rejected.first[0]}"
            )
        if outcome.unlabelled:
            rows = counted(outcome.unlabelled, "row")
            report.append(f"left out: {rows} of {outcome.rows:,} without a label")
        artifact.set_string_custom_property("types", "\n".join(report))


def _write(
    runner: shards.ShardRunner,
    data: Sequence[Shard],
    work: WriteShard,
    most_rejected: float,
) -> Outcome:
    """Writes all shards; publishes the files if the whole can be used."""
    progress.begin(shards.rows_of(data))
    outcome = runner.fold(data, work, Outcome.merge)
    progress.end(outcome.rows)
    outcome.rejected.check(outcome.rows + outcome.rejected.rows, most_rejected)
    outcome.check_labels()
    _check_splits(outcome, work.splitter)
    _warn_of_shared_rows(outcome)
    outcome.publish(work.examples)
    return outcome


def _declared(
    files: Sequence[Source], exec_properties: Mapping[str, Any]
) -> dict[str, Kind] | None:
    """The kind of each column by the schema; None without one."""
    schema_file = exec_properties["schema_file"]
    if exec_properties.get("schema_fingerprint") and not schema_file:
        schema_file = WorkloadPaths.from_environment().schema
    if schema_file:
        return columns.from_schema(files, schema_file)
    columns.check_same(files)
    return None


def _lists(
    files: Sequence[Source], kinds: Mapping[str, Kind], profiles: Mapping[str, Profile]
) -> frozenset[str]:
    """The columns that may have several values in a row."""
    if not profiles and any(file.open_ended for file in files):
        return frozenset(kinds)  # the schema has their types, but nobody their values
    several = (name for name, profile in profiles.items() if profile.several)
    return frozenset(several).union(*(file.lists for file in files))


def _check_splits(outcome: Outcome, splitter: Splitter) -> None:
    for split, (written, _) in outcome.splits.items():
        if not written.rows:
            raise UserError(
                f"`{split}` got none of the {outcome.rows} rows, divided by "
                f"{splitter.described}",
                key="data.split",
                remedy="Change the shares or the keys, or use more data.",
            )


def _warn_of_shared_rows(outcome: Outcome) -> None:
    """Warns of rows of a split that stand in an earlier split, too."""
    names = list(outcome.splits)
    for place, (split, (written, _)) in enumerate(outcome.splits.items()):
        shared = outcome.hashes.shared(split)
        if not shared.rows:
            continue
        about = "" if shared.exact else "about "
        earlier = " or ".join(f"`{name}`" for name in names[:place])
        chosen = " or chosen by" * (place > 1)
        events.emit(
            "warning",
            message=f"{about}{shared.rows:,} of {written.rows:,} rows of the split "
            f"`{split}` are identical to a row of {earlier}: the model is evaluated on "
            f"rows that it is trained on{chosen}. Remove repeated rows from the data, "
            "or keep them in one split: data.split: {by: hash, keys: [COLUMN]}.",
        )


def _describe(
    artifact: types.Artifact,
    pattern: str,
    chosen: Sequence[spans.Span],
    outcome: Outcome,
) -> None:
    """Records spans, files and numbers of rows as properties of the artifact."""
    newest = max(span.number for span in chosen)
    artifact.span = newest
    artifact.set_int_custom_property("span", newest)
    examples_utils.set_payload_format(
        artifact, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    )
    examples_utils.set_file_format(artifact, FILE_FORMAT)
    artifact.set_int_custom_property("rows", outcome.rows - outcome.unlabelled)
    for split, (written, _) in outcome.splits.items():
        counts.record(artifact, split, written.rows)
    files = [path for span in chosen for path in span.files]
    recorded = json.dumps(first(files, _FILES_RECORDED))
    artifact.set_string_custom_property("files", recorded)
    numbers = json.dumps([[span.number, span.version] for span in chosen])
    artifact.set_string_custom_property("spans", numbers)
    artifact.set_string_custom_property("pattern", pattern)
