"""ImportSchemaGen: a curated schema that the cache sees change."""

from __future__ import annotations

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.import_schema_gen import executor


class ImportSchemaGenSpec(types.ComponentSpec):
    """A file in, a Schema out."""

    PARAMETERS = {
        "schema_file": ExecutionParameter(type=str),
        "fingerprint": ExecutionParameter(type=str),
    }
    INPUTS = {}
    OUTPUTS = {"schema": ChannelParameter(type=standard_artifacts.Schema)}


class ImportSchemaGen(base_component.BaseComponent):
    """Brings a schema in text form into the pipeline, as TFX's own does.

    Usage:

        schema_gen = ImportSchemaGen(
            schema_file="/home/me/schema.pbtxt", fingerprint=hash_of_its_content
        )

    TFX's own has the path alone as a parameter: a schema edited in place would be
    taken from the cache.
    """

    SPEC_CLASS = ImportSchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(self, *, schema_file: str, fingerprint: str):
        """Builds the component.

        Args:
          schema_file: Path of a tensorflow_metadata Schema in text form; "" for the
            one in the environment (see `workload_paths`).
          fingerprint: Hash of its content.
        """
        super().__init__(
            ImportSchemaGenSpec(
                schema_file=schema_file,
                fingerprint=fingerprint,
                schema=types.Channel(type=standard_artifacts.Schema),
            )
        )
