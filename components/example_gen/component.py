"""ExampleGen: CSV and Parquet spans to tf.Examples."""

from __future__ import annotations

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
        "stack": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {}
    OUTPUTS = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)
    }


class ExampleGen(base_component.BaseComponent):
    """Reads CSV (`.csv`, `.csv.gz`) and Parquet, many spans at once, without Beam.

    Usage:
      example_gen = ExampleGen(
          pattern="/data/span-{SPAN}/*.csv",
          spans="[[1, null], [2, null]]",
          fingerprint=spans.fingerprint(spans.find_spans(pattern)),
          split='{"by": "hash", "keys": ["customer"], "train": 8, "eval": 2}',
      )

    `outputs["examples"]` is a standard Examples artifact with the splits `train` and
    `eval`. No rows are dropped or shuffled; what divides them is told in `splitting`,
    what types they get in `inference`, `columns` and `features`. There is no custom
    driver: which spans are meant, and that their files changed, is said by `spans` and
    `fingerprint`, which whoever starts the run takes from the module `spans`.
    """

    SPEC_CLASS = ExampleGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

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
        stack: str = "",
    ):
        """Constructs an ExampleGen.

        Args:
          pattern: Absolute glob; may hold {SPAN}, {DATE}, {VERSION} (see `spans`). ""
            for the one in the environment (see `workload_paths`).
          spans: JSON list of [span, version or null]; `[]` is all that match. May be a
            RuntimeParameter.
          fingerprint: Of the files of these spans, so that the cache sees them change.
            May be a RuntimeParameter.
          split: JSON `{"by": "hash"|"ratio", "keys": […], "train": 8, "eval": 2}`.
          schema_file: TFMD schema in text form that gives the types; without one they
            are inferred from all the data.
          schema_fingerprint: Of its content, for the cache. With one and no
            `schema_file`, the environment names the file.
          label: Column that must have more than one value.
          null_values: JSON list of the spellings of a missing value, which count in
            columns that hold numbers otherwise. An empty field always is missing.
          stack: Versions that the cache should tell apart.
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
                stack=stack,
                examples=types.Channel(type=standard_artifacts.Examples),
            )
        )
