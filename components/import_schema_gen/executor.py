"""Checks the curated schema and copies it into the pipeline."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.schema_gen.import_schema_gen import executor
from tfx.types import artifact_utils

from strategos.components.schema_file import read_schema
from strategos.components.user_code.workload_paths import WorkloadPaths


class Executor(executor.Executor):
    """TFX's executor after a check whose errors name file and line."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the `schema` artifact.

        Raises:
          UserError: The file is missing or is not a schema.
        """
        here = WorkloadPaths.from_environment()
        path = exec_properties["schema_file"] or here.schema
        read_schema(path)
        super().Do(input_dict, output_dict, {**exec_properties, "schema_file": path})
        schema = artifact_utils.get_single_instance(output_dict["schema"])
        schema.set_string_custom_property("schema_file", path)
