"""The Trainer's executor: builds the `WorkerSpec`, launches it, records the facts."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils
from tfx.utils import io_utils

from strategos.components import events, node_ids, runtime_parameters
from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, object_stores, storage
from strategos.components.records import counts, splits
from strategos.components.runtime_parameters import NOTHING
from strategos.components.schema_file import read_schema
from strategos.components.trainer import finished, launchers
from strategos.components.trainer.launchers.jobs import input_files
from strategos.components.trainer.operation import Operation
from strategos.components.trainer.spec import CHECKPOINT_MARK, Settings, WorkerSpec
from strategos.components.transformed import learned
from strategos.components.user_code import modules, workload_paths
from strategos.components.wording import choices, did_you_mean

_INT_FACTS = (
    "replicas",
    "workers",
    "global_batch",
    "rows",
    "steps",
    "examples",
    "restarts",
    "seed",
    "parameters",
)
_TEXT_FACTS = ("strategy", "reason")
_KEPT_SECONDS = 7 * 86400.0


class Executor(base_executor.BaseExecutor):
    """Executor of the Trainer; TFX runs in this process, TensorFlow in the worker."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Trains, and records the facts as properties of the model.

        Args:
          input_dict: Input artifacts by name.
          output_dict: Output artifacts by name.
          exec_properties: Execution properties.

        Raises:
          UserError: The user's code, settings or data cannot be trained with.
          WorkerError: The worker failed by an internal error.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        operation = Operation.from_environment()
        spec = worker_spec(input_dict, output_dict, exec_properties, operation)
        check_label(spec, operation.judged_as)
        others = prune_checkpoints(spec.checkpoint_dir)
        if others and not operation.from_scratch:
            _say_what_is_not_resumed(spec.checkpoint_dir, others)
        local = with_local_inputs(spec)
        facts = _finished(local, operation) or launchers.launch(local, operation)
        model = artifact_utils.get_single_instance(output_dict["model"])
        _record(model, facts)
        model.set_string_custom_property("warm_start", spec.warm_start or NOTHING)
        module_file = modules.find(spec.folder, spec.module) or spec.module
        model.set_string_custom_property("module_file", str(module_file))
        if not operation.checkpoint_key:  # an orchestrator other than Strategos
            storage.remove(spec.checkpoint_dir)


def _finished(spec: WorkerSpec, operation: Operation) -> dict[str, Any] | None:
    """The facts of a model that an earlier run finished but did not publish."""
    facts = None if operation.from_scratch else finished.take(spec)
    if facts is not None:
        message = "taking the model that an interrupted run had finished"
        logging.info("%s: %s", message, spec.checkpoint_dir)
        events.emit("note", message=message)
    return facts


def worker_spec(
    inputs: Mapping[str, list[types.Artifact]],
    outputs: Mapping[str, list[types.Artifact]],
    properties: Mapping[str, Any],
    operation: Operation,
) -> WorkerSpec:
    """Builds the worker's spec from the executor's arguments.

    Args:
      inputs: Input artifacts by name.
      outputs: Output artifacts by name.
      properties: Execution properties.
      operation: Has the place of the checkpoints. Without a key there, they are found
        by the URIs of the inputs and the properties.
    """
    folder, module = workload_paths.user_module(properties["user_module"])
    schema_dir = artifact_utils.get_single_uri(inputs["schema"])
    model_dir = artifact_utils.get_single_uri(outputs["model"])
    beside = os.path.dirname(os.path.dirname(model_dir.rstrip("/")))
    checkpoints = operation.checkpoint_root or os.path.join(beside, "checkpoints")
    key = operation.checkpoint_key or _key(inputs, properties)
    parameters = {
        each.argument: each.decode(properties[each.argument])
        for each in runtime_parameters.taken_by(node_ids.TRAINER)
    }
    graph = artifact_utils.get_single_uri(inputs["transform_graph"])
    weight = properties.get("weight") or ""
    split = splits.evaluated(_split_names(inputs["examples"]))
    weights = workload_paths.weights(parameters["warm_start"])
    parameters["warm_start"] = "" if weights == NOTHING else weights
    return WorkerSpec(
        folder=folder,
        module=module,
        label=learned.label(properties["label"], graph, weight),
        weight=weight,
        train_files=_files(inputs["examples"], "train"),
        eval_files=_files(inputs["examples"], split),
        eval_split=split,
        train_rows=counts.recorded(inputs["examples"], "train"),
        eval_rows=counts.recorded(inputs["examples"], split),
        transform_graph=graph,
        schema_file=io_utils.get_only_uri_in_dir(schema_dir),
        model_dir=model_dir,
        log_dir=artifact_utils.get_single_uri(outputs["model_run"]),
        checkpoint_dir=os.path.join(checkpoints, key),
        settings=Settings(**json.loads(properties["settings"])),
        null_values=tuple(json.loads(properties.get("null_values", "[]"))),
        reading=properties.get("reading", "{}"),
        files=tuple(json.loads(properties["user_module"]).get("files", ())),
        **parameters,
    )


def check_label(spec: WorkerSpec, judged_as: str) -> None:
    """Rejects a label or weight that nothing makes, and several labels a row.

    Of several labels the Evaluator could compare only one.

    Args:
      spec: The training.
      judged_as: See `Operation`.

    Raises:
      UserError: Neither the data nor `preprocessing_fn` have the label or the weight,
        or the transformed label has several values.
    """
    file = f"{spec.transform_graph}/transformed_metadata/schema.pbtxt"
    if not fileio.exists(file):
        return
    made = {each.name: each for each in read_schema(file).feature}
    known = {*made, *(each.name for each in read_schema(spec.schema_file).feature)}
    columns = spec.target.columns
    for key, name in (*(("label", name) for name in columns), ("weight", spec.weight)):
        if name and name not in known:
            raise UserError(
                "neither the data nor `preprocessing_fn` have such a feature",
                key=key,
                received=f"`{name}`",
                expected=choices(sorted(known)),
                remedy=did_you_mean(name, known),
            )
    if judged_as not in ("binary", "regression") or spec.label not in made:
        return
    width = math.prod(dim.size for dim in made[spec.label].shape.dim)
    if width > 1:
        raise UserError(
            f"`{spec.label}` has {width} values a row after `preprocessing_fn`, and "
            f"`evaluator.task: {judged_as}` compares one",
            key="label",
            remedy="If these are several classes, 0 or 1 each, set `evaluator.task: "
            "multi_label`; else train a model for each value, or remove `evaluator`.",
        )


def with_local_inputs(spec: WorkerSpec) -> WorkerSpec:
    """Downloads the inputs that TensorFlow opens from an object store.

    Such as the weights that a training starts from.

    Args:
      spec: The training.

    Returns:
      The training with local inputs, in folders named by their URLs; see `input_files`.

    Raises:
      UserError: An input cannot be read.
    """
    beside = os.path.dirname(os.path.dirname(spec.model_dir))
    folder = os.path.join(beside, "inputs")
    shutil.rmtree(folder, ignore_errors=True)

    def at(url: str) -> str:
        if not filesystems.is_remote(url):
            return url
        target = os.path.join(folder, object_stores.path_of(url))
        key = "trainer.warm_start" if url == spec.warm_start else "run.root"
        with object_stores.problems_of(url, key, "read"):
            storage.get(url, target)
        return target

    return input_files.local(spec, at)


def prune_checkpoints(own: str) -> list[str]:
    """Removes old checkpoints of other trainings that no run has resumed.

    Args:
      own: Folder of this training's checkpoints, which is kept.

    Returns:
      The folders of other trainings' checkpoints that are kept, the newest last.
    """
    if filesystems.is_remote(own):  # with the checkpoints of one run alone
        return []
    kept = {}
    for folder in filter(Path.is_dir, Path(own).parent.glob("*")):
        if folder == Path(own):
            continue
        kept[str(folder)] = _touched(folder)
        if time.time() - kept[str(folder)] > _KEPT_SECONDS:
            logging.info("Removing %s: no run has resumed it.", folder)
            storage.remove(str(folder))
            del kept[str(folder)]
    return sorted(kept, key=kept.__getitem__)


def _say_what_is_not_resumed(own: str, others: Sequence[str]) -> None:
    """Names the interrupted training that somebody may expect to go on."""
    steps = Path(others[-1]).glob(f"step-*/{CHECKPOINT_MARK}")
    newest = max((mark.parent.name for mark in steps), default=None)
    if newest and not os.path.isdir(own):
        step = int(newest.removeprefix("step-"))
        message = (
            f"starting at step 0: the training that was interrupted at step {step:,} "
            f"had other data, settings or code (its checkpoints: {others[-1]})"
        )
        logging.info(message)
        events.emit("note", message=message)


def _touched(folder: Path) -> float:
    """Time of the newest file in `folder`, or of the making of an empty folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return max(path.stat().st_mtime for path in paths or [folder])


def _key(
    inputs: Mapping[str, list[types.Artifact]], properties: Mapping[str, Any]
) -> str:
    uris = {
        name: [each.uri for each in artifacts] for name, artifacts in inputs.items()
    }
    resumable = {each.argument for each in runtime_parameters.TABLE if each.resumable}
    resumable.add("warm_start")  # here the path of a model that each push replaces
    settings = {k: v for k, v in properties.items() if k not in resumable}
    text = json.dumps([uris, settings], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _split_names(examples: list[types.Artifact]) -> list[str]:
    return artifact_utils.decode_split_names(examples[0].split_names)


def _files(examples: list[types.Artifact], split: str) -> tuple[str, ...]:
    folders = artifact_utils.get_split_uris(examples, split)
    return tuple(file for folder in folders for file in listing.listed(folder))


def _record(model: types.Artifact, facts: Mapping[str, Any]) -> None:
    for name in facts.keys() & set(_INT_FACTS):  # of a stock module not all are known
        model.set_int_custom_property(name, facts[name])
    for name in _TEXT_FACTS:
        model.set_string_custom_property(name, facts[name])
    if "examples_per_second" in facts:
        speed = facts["examples_per_second"]
        model.set_float_custom_property("examples_per_second", speed)
    recorded = ["history", "evaluation", *(["phases"] if facts.get("phases") else [])]
    for name in recorded:
        model.set_string_custom_property(name, json.dumps(facts[name]))
