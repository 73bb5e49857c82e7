"""Copies the model in production into an artifact."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from strategos.components import exported
from strategos.components.errors import UserError
from strategos.components.push_targets import targets
from strategos.components.runtime_parameters import NOTHING

PATH = "path"
NONE = "none"


class Executor(base_executor.BaseExecutor):
    """Copies the SavedModel at `baseline`, if a model is in production."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes the `model` artifact; see `component.BaselineModel`.

        Raises:
          UserError: The path has no SavedModel.
        """
        model = artifact_utils.get_single_instance(output_dict["model"])
        path = exec_properties["baseline"]
        model.set_string_custom_property(PATH, path)
        model.set_int_custom_property(NONE, int(path == NOTHING))
        if path == NOTHING:
            logging.info("No model in production to compare with.")
            return
        with targets.local(path) as folder:
            if not Path(folder, exported.SAVED_MODEL).is_file():
                raise UserError(
                    f"{path} has no SavedModel. It should be the model in production, "
                    "which the candidate is compared with",
                    key="pusher.to",
                    remedy="Put it back, or judge the candidate without comparing: "
                    "--without-baseline.",
                )
            io_utils.copy_dir(folder, path_utils.serving_model_dir(model.uri))
        logging.info("The candidate is compared with %s.", path)
