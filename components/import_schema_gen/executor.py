"""Copies the curated schema into the pipeline, once it is known to be one."""

from __future__ import annotations

from typing import Any

from tfx import types
from tfx.components.schema_gen.import_schema_gen import executor

from strategos.components.import_schema_gen.schema_file import read_schema


class Executor(executor.Executor):
    """The stock executor behind a check that names file and line."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the `schema` artifact.

        Raises:
          UserError: The file is missing or no schema.
        """
        read_schema(exec_properties["schema_file"])
        super().Do(input_dict, output_dict, exec_properties)
