"""ImportSchemaGen: imports a curated schema, with its content in the cache key."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter, ExecutionParameter

from strategos.components.import_schema_gen import executor


class ImportSchemaGenSpec(types.ComponentSpec):
    """Parameters and outputs of `ImportSchemaGen`."""

    PARAMETERS = {
        "schema_file": ExecutionParameter(type=str),
        "fingerprint": ExecutionParameter(type=str),
    }
    INPUTS: dict[str, Any] = {}
    OUTPUTS = {"schema": ChannelParameter(type=standard_artifacts.Schema)}


class ImportSchemaGen(base_component.BaseComponent):
    """Imports a schema in text form into the pipeline, as TFX's ImportSchemaGen does.

    Usage:

        schema_gen = ImportSchemaGen(
            schema_file="/home/me/schema.pbtxt", fingerprint=hash_of_its_content
        )

    TFX's ImportSchemaGen has only the path as a parameter, so that a run after an edit
    of the file would reuse the cached schema.
    """

    SPEC_CLASS = ImportSchemaGenSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(executor.Executor)

    def __init__(self, *, schema_file: str, fingerprint: str):
        """Builds the component.

        Args:
          schema_file: Path of a tensorflow_metadata Schema in text form; "" takes the
            path from the environment (see `workload_paths`).
          fingerprint: Hash of the file's content.
        """
        super().__init__(
            ImportSchemaGenSpec(
                schema_file=schema_file,
                fingerprint=fingerprint,
                schema=types.Channel(type=standard_artifacts.Schema),
            )
        )
