"""Gathers what the training worker must know, starts it, records what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components.trainer.launchers import local
from strategos.components.trainer.spec import WorkerSpec

_INT_FACTS = (
    "replicas",
    "workers",
    "global_batch",
    "steps",
    "examples",
    "restarts",
    "seed",
)
_TEXT_FACTS = ("strategy", "reason")


class Executor(base_executor.BaseExecutor):
    """Executor of the Trainer: TFX on this side, TensorFlow in the worker."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Trains, and leaves the facts of it as properties of the model.

        Raises:
          UserError: The user's code, settings or data cannot be trained with.
          WorkerError: The worker ended by an error of ours.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        facts = local.launch(worker_spec(input_dict, output_dict, exec_properties))
        _record(artifact_utils.get_single_instance(output_dict["model"]), facts)


def worker_spec(
    inputs: Mapping[str, list[types.Artifact]],
    outputs: Mapping[str, list[types.Artifact]],
    properties: Mapping[str, Any],
) -> WorkerSpec:
    """What the worker is told, from what the executor is told."""
    user_module = json.loads(properties["user_module"])
    settings = json.loads(properties["settings"])
    schema_dir = artifact_utils.get_single_uri(inputs["schema"])
    return WorkerSpec(
        folder=user_module["folder"],
        module=user_module["module"],
        label=properties["label"],
        train_files=_files(inputs["examples"], "train"),
        eval_files=_files(inputs["examples"], "eval"),
        transform_graph=artifact_utils.get_single_uri(inputs["transform_graph"]),
        schema_file=io_utils.get_only_uri_in_dir(schema_dir),
        model_dir=artifact_utils.get_single_uri(outputs["model"]),
        log_dir=artifact_utils.get_single_uri(outputs["model_run"]),
        batch_size=properties["batch_size"],
        epochs=properties["epochs"],
        seed=properties["seed"],
        hyperparameters=json.loads(properties["hyperparameters"]),
        distribution=json.loads(properties["distribution"]),
        callbacks=settings.get("callbacks") or {},
    )


def _files(examples: list[types.Artifact], split: str) -> tuple[str, ...]:
    folders = artifact_utils.get_split_uris(examples, split)
    patterns = map(io_utils.all_files_pattern, folders)
    return tuple(file for pattern in patterns for file in sorted(fileio.glob(pattern)))


def _record(model: types.Artifact, facts: Mapping[str, Any]) -> None:
    for name in _INT_FACTS:
        model.set_int_custom_property(name, facts[name])
    for name in _TEXT_FACTS:
        model.set_string_custom_property(name, facts[name])
    speed = facts["examples_per_second"]
    model.set_float_custom_property("examples_per_second", speed)
    for name in ("history", "evaluation"):
        model.set_string_custom_property(name, json.dumps(facts[name]))
