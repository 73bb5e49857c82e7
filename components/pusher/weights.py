"""Weights inside of a pushed version, which a later run on a cluster starts from."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from strategos.components import exported
from strategos.components.files import filesystems
from strategos.components.push_targets import targets
from strategos.components.pusher import WEIGHTS_VARIABLE
from strategos.components.runtime_parameters import NOTHING


@contextlib.contextmanager
def added(
    model: str, started_from: str, live: targets.Target
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a model with its weights, and facts about them for its manifest.

    Args:
      model: The SavedModel's folder in a Model artifact, a path or a URL.
      started_from: The weights that its training started from, or "none".
      live: The serving folder.

    Yields:
      A folder that exists while the block runs, and the facts `warm_start` and
      `generation`: the number of models from the last fresh weights to this one, itself
      included. If versions are to have no weights, or none exist: `model` and `{}`.

    Raises:
      UserError: A URL cannot be read.
    """
    beside = os.path.join(os.path.dirname(model.rstrip("/")), exported.WEIGHTS_DIR)
    exist = filesystems.is_remote(model) or os.path.isdir(beside)
    if not os.environ.get(WEIGHTS_VARIABLE) or not exist:
        yield model, {}
        return
    version = rf"{re.escape(live.uri)}/(\d+)/{re.escape(exported.PUSHED_WEIGHTS)}"
    match = re.fullmatch(version, started_from)
    before = live.manifest(int(match[1])).get("generation", 0) if match else 0
    with (
        targets.local(model) as serving,
        targets.local(beside) as weights,
        tempfile.TemporaryDirectory() as folder,
    ):
        whole = os.path.join(folder, "model")
        shutil.copytree(serving, whole)
        shutil.copytree(weights, os.path.join(whole, exported.PUSHED_WEIGHTS))
        yield whole, {"warm_start": started_from or NOTHING, "generation": before + 1}
