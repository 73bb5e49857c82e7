"""Reads the spans' files and writes their rows as tf.Examples, in two splits."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tfx import types
from tfx.components.util import examples_utils
from tfx.dsl.components.base import base_executor
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils

from strategos.components import events
from strategos.components.errors import Place, UserError
from strategos.components.example_gen import (
    columns,
    features,
    inference,
    numerals,
    sources,
    spans,
)
from strategos.components.example_gen.columns import Kind
from strategos.components.example_gen.inference import Profile
from strategos.components.example_gen.sources import Source
from strategos.components.example_gen.splitting import Splitter
from strategos.components.records import FILE_FORMAT, encode
from strategos.components.records.write import ShardWriter
from strategos.components.user_code.workload_paths import WorkloadPaths
from strategos.components.wording import first

SPLITS = ("train", "eval")
_FILES_RECORDED = 50


class Executor(base_executor.BaseExecutor):
    """Streams every file through Arrow; memory does not grow with the data."""

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
        files = [[sources.open_source(path) for path in span.files] for span in chosen]
        splitter = Splitter.from_json(exec_properties["split"])
        nulls = numerals.Nulls.of(json.loads(exec_properties["null_values"]))
        kinds, profiles = _settle(
            [f for row in files for f in row], splitter, exec_properties, nulls
        )
        artifact = artifact_utils.get_single_instance(output_dict["examples"])
        artifact.split_names = artifact_utils.encode_split_names(list(SPLITS))
        writers = [
            ShardWriter(artifact_utils.get_split_uri([artifact], split))
            for split in SPLITS
        ]
        label = _Label(exec_properties["label"], kinds)
        reader = _Reader(files, kinds, nulls, profiles)
        for span, first_row, raw, converted in reader:
            label.see(converted)
            train = splitter.trains(raw, chosen[span].number, first_row)
            records = encode.serialize(converted)
            for writer, mask in zip(writers, (train, ~train), strict=True):
                writer.write(records.filter(pa.array(mask)))
        for writer in writers:
            writer.close()
        label.check()
        _check_written(reader.rows, writers, splitter)
        _describe(artifact, pattern, chosen, writers)
        report = inference.describe(profiles) + reader.rounded
        artifact.set_string_custom_property("types", "\n".join(report))


class _Reader:
    """Converts all rows of all spans, reports progress, names the row of an error.

    Attributes:
      rows: Rows read so far.
      rounded: One sentence per column of inferred type FLOAT with a number that
        float32 cannot represent.
    """

    def __init__(
        self,
        files: Sequence[Sequence[Source]],
        kinds: Mapping[str, Kind],
        nulls: numerals.Nulls,
        profiles: Mapping[str, Profile],
    ):
        self._files = files
        self._kinds = kinds
        self._nulls = nulls
        self._floats = {n: p for n, p in profiles.items() if p.kind == Kind.FLOAT}
        self._reported = 0.0
        self.rows = 0
        self.rounded: list[str] = []

    def __iter__(
        self,
    ) -> Iterator[tuple[int, int, pa.RecordBatch, pa.RecordBatch]]:
        """Yields (index of the span, row in the span, raw batch, feature batch)."""
        for span, of_span in enumerate(self._files):
            row = 0
            for source in of_span:
                first = row
                for batch in source.batches():
                    yield span, row, batch, self._convert(source, row - first, batch)
                    row += batch.num_rows
                    self._report(batch.num_rows)
                if row - first != source.rows:
                    raise RuntimeError(
                        f"{source.path}: read {row - first} of {source.rows} rows"
                    )
        self._report(0, last=True)

    def _convert(
        self, source: Source, row: int, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        try:
            converted = features.convert(batch, self._kinds, self._nulls)
            self._watch(source, row, batch, converted)
            return converted
        except features.BadValueError as error:
            kind, where = self._kinds[error.column], source.where(row + error.row)
            raise UserError(
                error.reason,
                place=Place(f"{source.path}: {where}: column `{error.column}`"),
                received=repr(str(error.value)[:100]),
                expected=kind.name,
                remedy="Correct the value (a missing one is an empty field), or the "
                "column's type in the schema.",
            ) from error

    def _watch(
        self,
        source: Source,
        row: int,
        batch: pa.RecordBatch,
        converted: pa.RecordBatch,
    ) -> None:
        """Records the first number of each column that float32 cannot represent."""
        for name, profile in list(self._floats.items()):
            found = features.first_rounded(batch, converted, name, self._nulls)
            if found:
                del self._floats[name]
                place = f"{source.path}: {source.where(row + found[0])}"
                self.rounded.append(
                    f"`{name}` is FLOAT because of {profile.because_of[Kind.FLOAT]}; "
                    f"float32 cannot represent {found[1][:100]} ({place}), so its "
                    f"value changes. Correct it, or declare the type in a schema."
                )

    def _report(self, rows: int, last: bool = False) -> None:
        self.rows += rows
        now = time.monotonic()
        if last or now - self._reported > 0.5:
            self._reported = now
            known = [source.rows for of_span in self._files for source in of_span]
            total = None if None in known else sum(known)
            events.emit("rows", rows=self.rows, total=total)


class _Label:
    """Checks that a label with one value per row has more than one distinct value."""

    def __init__(self, name: str, kinds: Mapping[str, Kind]):
        self._name = name
        self._watched = name in kinds
        self._seen: set[Any] = set()
        self._rows = 0

    def see(self, batch: pa.RecordBatch) -> None:
        """Records the values of one batch."""
        if not self._watched:
            return
        column = batch.column(batch.schema.get_field_index(self._name))
        if (pc.max(pc.list_value_length(column)).as_py() or 0) > 1:
            self._watched = False
            return
        self._rows += len(column)
        if len(self._seen) < 2:
            self._seen.update(column.flatten().unique()[:2].to_pylist())

    def check(self) -> None:
        """Rejects a constant label.

        Raises:
          UserError: All rows have the same value, or none.
        """
        if not self._watched or len(self._seen) > 1:
            return
        value = self._seen.pop() if self._seen else "missing"
        if isinstance(value, bytes):
            value = repr(value.decode(errors="replace"))
        raise UserError(
            f"`{self._name}` is {value} in all {self._rows} rows; a model cannot "
            "learn from it",
            key="label",
            remedy="Check how the column is made, or choose another one or more spans.",
        )


def _settle(
    files: Sequence[Source],
    splitter: Splitter,
    exec_properties: Mapping[str, Any],
    nulls: numerals.Nulls,
) -> tuple[dict[str, Kind], dict[str, Profile]]:
    """The kind of each column, and the profiles of the columns that were inferred."""
    for file in files:
        splitter.check(file.path, file.names)
    schema_file = exec_properties["schema_file"]
    if exec_properties.get("schema_fingerprint") and not schema_file:
        schema_file = WorkloadPaths.from_environment().schema
    if schema_file:
        return columns.from_schema(files, schema_file), {}
    events.emit("progress", message="inferring types")
    profiles = inference.infer(files, nulls)
    return {name: profile.kind for name, profile in profiles.items()}, profiles


def _check_written(
    read: int, writers: Sequence[ShardWriter], splitter: Splitter
) -> None:
    written = [writer.rows for writer in writers]
    if sum(written) != read:
        raise RuntimeError(f"read {read} rows, wrote {sum(written)}")
    for split, rows in zip(SPLITS, written, strict=True):
        if not rows:
            by = f"the keys {', '.join(splitter.keys)}" if splitter.keys else "ratio"
            raise UserError(
                f"`{split}` got none of the {read} rows, divided by {by}",
                key="data.split",
                received=f"{splitter.train} : {splitter.eval}",
                remedy="Change the shares or the keys, or use more data.",
            )


def _describe(
    artifact: types.Artifact,
    pattern: str,
    chosen: Sequence[spans.Span],
    writers: Sequence[ShardWriter],
) -> None:
    """Records spans, files and numbers of rows as properties of the artifact."""
    newest = max(span.number for span in chosen)
    artifact.span = newest
    artifact.set_int_custom_property("span", newest)
    examples_utils.set_payload_format(
        artifact, example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    )
    examples_utils.set_file_format(artifact, FILE_FORMAT)
    artifact.set_int_custom_property("rows", sum(writer.rows for writer in writers))
    for split, writer in zip(SPLITS, writers, strict=True):
        artifact.set_int_custom_property(f"rows_{split}", writer.rows)
    files = [path for span in chosen for path in span.files]
    recorded = json.dumps(first(files, _FILES_RECORDED))
    artifact.set_string_custom_property("files", recorded)
    artifact.set_string_custom_property("pattern", pattern)
