"""Pushes a blessed model, and links the artifact to the pushed version."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils
from tfx.utils import path_utils, proto_utils

from strategos.components import events
from strategos.components.evaluation.outcome.blessing import is_blessed
from strategos.components.files import filesystems
from strategos.components.push_targets import endpoint, targets
from strategos.components.pusher import (
    ABORTED_VARIABLE,
    CANARY,
    NEWEST_VARIABLE,
    PUSHED_BY,
    PUSHER_VARIABLE,
    SLOT,
    manifest,
    weights,
)

_PUSHED = "pushed"  # a property's name, and the start of others', as in TFX's Pusher


class Executor(base_executor.BaseExecutor):
    """Does the work of TFX's Pusher executor, and writes to a `targets.Target`.

    Not a subclass: importing TFX's needs TensorFlow and Beam, and pushing does not.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed; see `component.Pusher`.

        Raises:
          UserError: The destination cannot be written, or the model not deployed.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed = artifact_utils.get_single_instance(output_dict["pushed_model"])
        for name in ("candidate", "baseline"):
            pushed.set_string_custom_property(name, exec_properties[name])
        destination = _destination(exec_properties["push_destination"])
        custom = json.loads(exec_properties.get("custom_config") or "{}")
        live = targets.of(custom["live"]) if custom.get("live") else None
        if live:
            pushed.set_string_custom_property(SLOT, custom.get("slot", CANARY))
        if not all_bless(input_dict):
            mark(pushed)
            return
        trained = artifact_utils.get_single_instance(input_dict["model"])
        is_old = path_utils.is_old_model_artifact(trained)
        model = path_utils.serving_model_path(trained.uri, is_old)
        target = targets.of(destination)
        run_id = getattr(self._context, "pipeline_run_id", None) or ""
        about = manifest.of(
            model,
            run_id,
            exec_properties["candidate"],
            exec_properties["baseline"],
            input_dict,
        )
        about |= _pushed_by()
        before = trained.get_string_custom_property("warm_start")
        with weights.added(model, before, live or target) as (whole, facts):
            about |= facts
            version = _push(target, whole, exec_properties["keep"], about, live)
        if version is None:
            mark(pushed)
            return
        endpoint.follow(endpoint.Endpoint.of(custom.get("endpoint")), target, version)
        path = target.path(version)
        if not (target.is_remote or filesystems.is_remote(pushed.uri)):
            _link(path, pushed.uri)
        mark(pushed, path, version)
        logging.info("Pushed %s.", path)


def all_bless(inputs: Mapping[str, list[types.Artifact]]) -> bool:
    """Whether a model may be pushed, as `CheckBlessing` of TFX's Pusher.

    Args:
      inputs: `model_blessing` and `infra_blessing`, as far as the pipeline has them.
    """
    for name in ("model_blessing", "infra_blessing"):
        if listed := inputs.get(name):
            blessing = artifact_utils.get_single_instance(listed)
            if not is_blessed(blessing):
                logging.info("Not blessed by %s.", blessing.uri)
                return False
    return True


def mark(pushed: types.Artifact, path: str = "", version: int | None = None) -> None:
    """Sets the properties of a PushedModel, as TFX's Pusher.

    Args:
      pushed: The artifact.
      path: The version's path or URL.
      version: Its number; None if no model was pushed.
    """
    pushed.set_int_custom_property(_PUSHED, int(version is not None))
    if version is not None:
        pushed.set_string_custom_property(f"{_PUSHED}_destination", path)
        pushed.set_string_custom_property(f"{_PUSHED}_version", str(version))


def _pushed_by() -> dict[str, Any]:
    """The entry of a manifest that names who pushes; {} if unknown."""
    who = os.environ.get(PUSHER_VARIABLE)
    return {PUSHED_BY: json.loads(who)} if who else {}


def _push(
    target: targets.Target,
    model: str,
    keep: int,
    about: Mapping[str, Any],
    live: targets.Target | None,
) -> int | None:
    """Pushes a model, if not yet done; returns its version, None if it may not serve.

    A canary is compared with the live model when it is promoted, so a live version that
    appeared since the evaluation does not stop it.
    """
    reason = _withdrawn(live or target, about) or (
        _settled(live, about) if live else ""
    )
    if reason:
        events.emit("warning", message=reason)
        return None
    version = _pushed_before(target, about)
    if version is not None:
        return version
    newest = os.environ.get(NEWEST_VARIABLE)  # unset on a cluster
    after = int(newest) if newest and not live else None
    return target.push(model, keep, about, after)


def _settled(live: targets.Target, about: Mapping[str, Any]) -> str:
    """Why a model may not be a canary: live or aborted; "" if it may."""
    newest, model = live.newest(), targets.identity(about)
    if newest is not None and targets.identity(live.manifest(newest)) == model:
        return f"version {newest}, which is live, has this model: no canary is pushed"
    if about["model"] in json.loads(os.environ.get(ABORTED_VARIABLE, "[]")):
        return (
            "this model was a canary that was aborted: not pushed again. --no-cache "
            "trains another model"
        )
    return ""


def _withdrawn(target: targets.Target, about: Mapping[str, Any]) -> str:
    """Why a model is not pushed again, if the last rollback withdrew it; else ""."""
    version = _withdrawn_version(target, about)
    if not version:
        return ""
    return (
        f"version {version} has this model, and a rollback withdrew it: not pushed "
        f"again. To make it live: strategos rollback PIPELINE_YAML {version}; "
        "--no-cache trains another model"
    )


def _withdrawn_version(target: targets.Target, about: Mapping[str, Any]) -> int:
    numbers = [number for number in target.versions() if target.serves(number)]
    manifests = [target.manifest(number) for number in numbers]
    models = [targets.identity(each) for each in manifests]
    model = targets.identity(about)
    runs = [each.get("run_id") for each in manifests]
    pushes = list(zip(runs, models, strict=True))
    if not pushes or pushes[-1] not in pushes[:-1] or models[-1] == model:
        return 0  # the live version is not a copy, which a rollback makes
    since = pushes.index(pushes[-1])
    later = list(zip(numbers, models, strict=True))[since:-1]
    return max((number for number, each in later if each == model), default=0)


def _pushed_before(target: targets.Target, about: Mapping[str, Any]) -> int | None:
    """The newest version, if a run pushed the same model and was killed right then."""
    newest, model = target.newest(), targets.identity(about)
    if newest is not None and targets.identity(target.manifest(newest)) == model:
        return newest
    return None


def _destination(push_destination: str) -> str:
    parsed = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(push_destination, parsed)
    return parsed.filesystem.base_directory


def _link(version: str, uri: str) -> None:
    """Makes the artifact a symlink to the version."""
    link = Path(uri)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()  # the launcher created an empty folder
    link.symlink_to(version, target_is_directory=True)
