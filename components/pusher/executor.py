"""Pushes a blessed model, and makes the artifact a link to it."""

from __future__ import annotations

import logging
from pathlib import Path
from shutil import copytree
from typing import Any

from tfx import types
from tfx.components.pusher import executor as tfx_pusher
from tfx.proto import pusher_pb2
from tfx.types import artifact_utils
from tfx.utils import io_utils, proto_utils

from strategos.components.files import filesystems
from strategos.components.pusher.serving import push


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
        if filesystems.is_remote(destination):
            filesystems.register(destination)
            super().Do(input_dict, output_dict, exec_properties)
        elif self.CheckBlessing(input_dict):
            model = self.GetModelPath(input_dict)
            copy = io_utils.copy_dir if filesystems.is_remote(model) else copytree
            folder = push(model, Path(destination), exec_properties["keep"], copy=copy)
            _publish(folder, pushed.uri)
            self._MarkPushed(pushed, str(folder), folder.name)
            logging.info("Pushed %s.", folder)
        else:
            self._MarkNotPushed(pushed)


def _destination(push_destination: str) -> str:
    parsed = pusher_pb2.PushDestination()
    proto_utils.json_to_proto(push_destination, parsed)
    return parsed.filesystem.base_directory


def _publish(folder: Path, uri: str) -> None:
    """Makes the artifact a link to the version."""
    if filesystems.is_remote(uri):
        return
    link = Path(uri)
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()  # the launcher made it, empty
    link.symlink_to(folder.resolve(), target_is_directory=True)
