"""Pushes a model whole or not at all, and prunes old versions."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfx import types
from tfx.components.pusher import executor as tfx_pusher
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils
from tfx.utils import proto_utils

from strategos.components.errors import UserError

ASIDE = ".tmp-"


class Executor(tfx_pusher.Executor):
    """TFX's Pusher, atomic on local file systems.

    An object store has no atomic rename: there TFX's own way is used, which writes
    `saved_model.pb` last, and nothing is pruned.
    """

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed; see `component.Pusher`.

        Raises:
          UserError: The destination cannot be written.
        """
        pushed = artifact_utils.get_single_instance(output_dict["pushed_model"])
        for name in ("candidate", "baseline"):
            pushed.set_string_custom_property(name, exec_properties[name])
        destination = _destination(exec_properties["push_destination"])
        if "://" in destination:
            super().Do(input_dict, output_dict, exec_properties)
        elif self.CheckBlessing(input_dict):
            model = self.GetModelPath(input_dict)
            folder = push(model, Path(destination), exec_properties["keep"])
            _publish(folder, pushed.uri)
            self._MarkPushed(pushed, str(folder), folder.name)
            logging.info("Pushed %s.", folder)
        else:
            self._MarkNotPushed(pushed)


def push(
    model: str, destination: Path, keep: int, clock: Callable[[], float] = time.time
) -> Path:
    """Makes `model` the newest version in `destination`, and keeps `keep` of them.

    One process at a time pushes to a destination: what lies aside there is taken for
    the remains of a crash.

    Args:
      model: The SavedModel's folder.
      destination: The serving folder, made where missing.
      keep: How many versions to leave, the new one included.
      clock: Gives unix seconds.

    Returns:
      The version's folder.

    Raises:
      UserError: The destination cannot be written.
    """
    try:
        destination.mkdir(parents=True, exist_ok=True)
        for remains in destination.glob(f"{ASIDE}*"):
            shutil.rmtree(remains)
        version = max([int(clock()), *(number + 1 for number in versions(destination))])
        aside = destination / f"{ASIDE}{version}"
        shutil.copytree(model, aside)
        folder = aside.rename(destination / str(version))
        for old in versions(destination)[:-keep]:
            _remove(destination / str(old))
    except OSError as error:
        raise UserError(
            f"pusher.to: {destination}: the model cannot be written there: "
            f"{error.strerror or error}. Make it a folder that this user may write to, "
            "with space for another version."
        ) from error
    return folder


def versions(destination: Path) -> list[int]:
    """The version numbers in `destination`, ascending."""
    return sorted(
        int(path.name)
        for path in destination.iterdir()
        if path.name.isdecimal() and path.is_dir()
    )


def _destination(push_destination: str) -> str:
    parsed = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(push_destination, parsed)
    return parsed.filesystem.base_directory


def _remove(folder: Path) -> None:
    # Aside first: a server never sees half of a version.
    shutil.rmtree(folder.rename(folder.with_name(ASIDE + folder.name)))


def _publish(folder: Path, uri: str) -> None:
    """Makes the artifact a link to the version."""
    if "://" in uri:
        return
    link = Path(uri)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()  # the launcher made it, empty
    link.symlink_to(folder.resolve(), target_is_directory=True)
