"""ExampleGen: spans of data files to tf.Examples."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from strategos.components.example_gen import executor


class ExampleGenSpec(component_spec.ComponentSpec):
    """Parameters and outputs of `ExampleGen`."""

    PARAMETERS = {
        "pattern": component_spec.ExecutionParameter(type=str),
        "spans": component_spec.ExecutionParameter(type=str),
        "fingerprint": component_spec.ExecutionParameter(type=str),
        "split": component_spec.ExecutionParameter(type=str),
        "schema_file": component_spec.ExecutionParameter(type=str),
        "schema_fingerprint": component_spec.ExecutionParameter(type=str),
        "label": component_spec.ExecutionParameter(type=str),
        "null_values": component_spec.ExecutionParameter(type=str),
        "reading": component_spec.ExecutionParameter(type=str),
        "unlabelled": component_spec.ExecutionParameter(type=str),
        "stack": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)
    }


class ExampleGen(base_component.BaseComponent):
    """Reads files of all formats of `sources`, many spans at once, in shards.

    Usage:
      example_gen = ExampleGen(
          pattern="/data/span-{SPAN}/*.csv",
          spans="[[1, null], [2, null]]",
          fingerprint=spans.fingerprint(spans.find_spans(pattern)),
          split='{"by": "hash", "keys": ["customer"], "train": 8, "eval": 2}',
      )

    `outputs["examples"]` is a standard Examples artifact with the splits `train` and
    `eval`, and `validation` if `split` asks for it. No row is shuffled, and none is
    dropped unless `unlabelled` says so.
    `splitting` documents how rows are divided; `inference`, `columns` and `features`
    document the types of their values. The component has no custom driver: the caller
    selects the spans and computes the fingerprint of their files with the module
    `spans`, and passes both as parameters.
    """

    SPEC_CLASS = ExampleGenSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(
        self,
        *,
        pattern: str,
        spans: str,
        fingerprint: str,
        split: str,
        schema_file: str = "",
        schema_fingerprint: str = "",
        label: str = "",
        null_values: str = "[]",
        reading: str = "{}",
        unlabelled: str = "keep",
        stack: str = "",
    ):
        """Constructs an ExampleGen.

        Args:
          pattern: Absolute glob; may contain {SPAN}, {DATE}, {VERSION} (see `spans`).
            "" takes the pattern from the environment (see `workload_paths`).
          spans: JSON list of [span, version or null], e.g. `[[3, null]]`; `[]` means
            all that match. May be a RuntimeParameter.
          fingerprint: Hash of the files of these spans: a changed file makes another
            cache key. May be a RuntimeParameter.
          split: JSON `{"by": "hash"|"ratio", "keys": […], "train": 8, "eval": 2}`, or
            `{"by": "span", "spans": 1, …}`; with `"validation": 1`, a part of the
            training rows (by span: so many spans) becomes the split `validation`.
          schema_file: TFMD schema in text form that declares the types. Default "":
            types are inferred from all the data.
          schema_fingerprint: Hash of the schema's content, part of the cache key. With
            a fingerprint but no `schema_file`, the environment names the file.
          label: Column that must have more than one value; "" checks none.
          null_values: JSON list of spellings of a missing value, e.g. `["NA"]`. They
            apply to columns of numbers. An empty field is always missing.
          reading: JSON of `sources.reading.Reading`: how files are written, and which
            faults are tolerated.
          unlabelled: `drop` leaves out rows without a value of `label`; default `keep`.
          stack: Versions of the libraries, part of the cache key.
        """
        super().__init__(
            spec=ExampleGenSpec(
                pattern=pattern,
                spans=spans,
                fingerprint=fingerprint,
                split=split,
                schema_file=schema_file,
                schema_fingerprint=schema_fingerprint,
                label=label,
                null_values=null_values,
                reading=reading,
                unlabelled=unlabelled,
                stack=stack,
                examples=types.Channel(type=standard_artifacts.Examples),
            )
        )
