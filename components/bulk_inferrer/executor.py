"""Predicts in a process of its own, into a folder beside those of earlier runs."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import io_utils, path_utils

from strategos.components import errors, events
from strategos.components.data_files import predicted_spans
from strategos.components.data_files.sources.reading import Reading
from strategos.components.errors import UserError, required
from strategos.components.evaluation.outcome.blessing import is_blessed
from strategos.components.files import temporary
from strategos.components.predict.batch.folder import OutputFolder
from strategos.components.predict.batch.request import BATCH_SIZE, Job, start
from strategos.components.push_targets import targets
from strategos.components.push_targets.predictions import (
    MANIFEST,
    PREDICTIONS,
    manifest,
)
from strategos.components.shards.engine import Engine
from strategos.components.user_code.workload_paths import PREDICTED, WorkloadPaths

_KEYS = {"--output": "predict.to", "--columns": "predict.columns"}


class Executor(base_executor.BaseExecutor):
    """Executor of the BulkInferrer."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Predicts the files if the model is blessed and pushed; see `component`.

        Raises:
          UserError: A file or row cannot be read or predicted, or the folder cannot be
            written. No predictions are published.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        result = artifact_utils.get_single_instance(output_dict["inference_result"])
        if reason := _withheld(input_dict):
            events.emit("warning", message=f"no rows are predicted: {reason}")
            return
        try:
            folder = _predicted(input_dict, exec_properties)
        except UserError as error:
            # A BadInputError would say that no node has run.
            named = {"type": "UserError", "key": _KEYS.get(error.key, error.key)}
            raise errors.from_json({**error.to_json(), **named}) from error
        about = required(manifest(folder))
        result.set_string_custom_property(PREDICTIONS, folder)
        for name in ("rows", "rejected"):
            result.set_int_custom_property(name, about[name])
        path = os.path.join(result.uri, MANIFEST)
        io_utils.write_string_file(path, json.dumps(about, indent=1) + "\n")


def _withheld(inputs: Mapping[str, Sequence[types.Artifact]]) -> str:
    """Why the model may not predict; "" if it may."""
    for blessing in inputs.get("model_blessing", ()):
        if not is_blessed(blessing):
            return "the model is not blessed"
    for pushed in inputs.get("pushed_model", ()):
        # Launchers of clusters hand all numbers over as floats.
        if not pushed.get_custom_property("pushed"):
            return "the model is not pushed"
    return ""


def _predicted(
    inputs: Mapping[str, Sequence[types.Artifact]], properties: Mapping[str, Any]
) -> str:
    """The folder with the predictions, which may be those of an earlier run."""
    pattern = (
        properties["pattern"] or WorkloadPaths.from_environment().others[PREDICTED]
    )
    version, served = _pushed(inputs)
    path = served or _exported(inputs)
    with temporary.folder() as place, targets.local(path) as local:
        memo = Path(place, "digests.json")
        job = Job(
            pipeline=properties["pipeline"],
            files=predicted_spans.files(pattern, properties["predicted_spans"], memo),
            columns=json.loads(properties["columns"]),
            format=properties["format"],
            batch_size=BATCH_SIZE,
            bad_rows=Reading.from_json(properties["reading"]),
            version=version,
            path=served,
        )
        request, key = job.request(local, memo)
        to = properties["destination"].rstrip("/")
        folder = OutputFolder.below(to, key, job.suffix)
        if manifest(folder.path) is not None:
            events.emit("note", message=f"{folder.path} has these predictions already")
            return folder.path
        job.check_columns(local)
        folder.check()
        with folder.held():
            folder.begin()
            start(request, folder, Engine.from_environment(), {})
    return folder.path


def _pushed(
    inputs: Mapping[str, Sequence[types.Artifact]],
) -> tuple[int | None, str | None]:
    """The version that the run has pushed, and its place; None if it pushes none.

    Raises:
      UserError: The pushed version is not live any more.
    """
    for pushed in inputs.get("pushed_model", ()):
        version = int(pushed.get_string_custom_property("pushed_version"))
        path = pushed.get_string_custom_property("pushed_destination")
        target = targets.of(posixpath.dirname(path))
        newest = target.newest() or 0
        live, ours = (targets.identity(target.manifest(x)) for x in (newest, version))
        if newest != version and live != ours:
            raise UserError(
                f"version {version} has the model of this run, and {path} is not live "
                f"any more: {target.path(newest) if newest else 'no version'} is",
                key="pusher.to",
                remedy="To predict with the live model: strategos predict "
                "PIPELINE_YAML FILES --output FOLDER; --no-cache trains another model.",
            )
        return version, path
    return None, None


def _exported(inputs: Mapping[str, Sequence[types.Artifact]]) -> str:
    model = artifact_utils.get_single_instance(list(inputs["model"]))
    return str(path_utils.serving_model_path(model.uri))
