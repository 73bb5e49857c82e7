"""Checks the curated schema and copies it into the pipeline."""

from __future__ import annotations

import os
from typing import Any

from tfx import types
from tfx.components.schema_gen.executor import DEFAULT_FILE_NAME
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.files import storage
from strategos.components.schema_file import read_schema
from strategos.components.user_code.workload_paths import WorkloadPaths


class Executor(base_executor.BaseExecutor):
    """Copies the file as TFX's executor does, after a check that names file and line.

    TFX's executor reads by TensorFlow, which has no `s3://` on the newer stack.
    """

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
        schema = artifact_utils.get_single_instance(output_dict["schema"])
        target = os.path.join(schema.uri, DEFAULT_FILE_NAME)
        io_utils.write_bytes_file(target, storage.read(path))
        schema.set_string_custom_property("schema_file", path)
