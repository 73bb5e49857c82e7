"""Names of pipelines without `name` in their YAML, remembered by their root.

The default is the folder's name. It changes when the folder is moved, and the pipeline
would lose its history, cache and model in production.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from strategos.components.errors import Place
from strategos.components.files import commit
from strategos.components.files.filesystems import is_remote
from strategos.components.user_code.fingerprint import fingerprint
from strategos.pipeline.root.state import file_hashes, make_state, state_folder

if TYPE_CHECKING:
    from strategos.pipeline.config.loading import Loaded
    from strategos.pipeline.config.sections import Config

_ORIGIN = "remembered by run.root"


def is_set(config: Config) -> bool:
    """Whether the settings have `name`; else `where` falls back to the whole file."""
    return config.where("name") != Place(str(config.path))


def named(loaded: Loaded) -> Loaded:
    """Returns the settings with the pipeline's remembered name, if they set none.

    Runs under this root have used that name for the same YAML, by its path relative to
    the root; or for a YAML that no longer exists, if there is only one such YAML and it
    had the same modules.

    Args:
      loaded: The effective settings.
    """
    config = loaded.config
    former = None if is_set(config) else _former(config)
    if former is None:
        return loaded
    name = _entries(config)[former]["name"]
    return dataclasses.replace(
        loaded,
        config=config.model_copy(update={"name": name}),
        origins={**loaded.origins, "name": _ORIGIN},
    )


def remember(config: Config) -> str:
    """Records the name that a run uses; the caller holds the root's lock.

    Args:
      config: The effective settings, from `named`.

    Returns:
      A sentence if the name of a YAML that is gone is taken over; "" else.
    """
    if is_set(config) or is_remote(config.run.root):
        return ""
    known, path = _entries(config), _path(config)
    former = _former(config)
    kept = {each: about for each, about in known.items() if each != former}
    updated = {**kept, path: {"name": config.name, "modules": _modules(config)}}
    if updated != known:
        file = _file(config)
        make_state(file.parent)
        commit.write(file, json.dumps(updated, indent=1))
    if former in (None, path):
        return ""
    return (
        f"`name` is not set: this run goes on as `{config.name}`, the pipeline of "
        f"{os.path.normpath(os.path.join(config.run.root, former))}, which is gone "
        "and had the same modules"
    )


def _former(config: Config) -> str | None:
    """The remembered path that gives a YAML its name; None for its folder's name."""
    known = _entries(config)
    path = _path(config)
    if not known or path in known:
        return path if path in known else None
    root = os.path.realpath(config.run.root)
    gone = [each for each in known if not os.path.exists(os.path.join(root, each))]
    is_moved = len(gone) == 1 and known[gone[0]]["modules"] == _modules(config)
    return gone[0] if is_moved else None


def _modules(config: Config) -> str:
    """A hash of the user's modules."""
    memo = file_hashes(config.run.root)
    wanted = config.transform.module, config.trainer.module
    parts = (fingerprint(str(config.folder), each, os.environ, memo) for each in wanted)
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def _path(config: Config) -> str:
    """The YAML's path relative to the root."""
    here = os.path.realpath(config.folder)
    return os.path.relpath(
        os.path.join(here, config.path.name), os.path.realpath(config.run.root)
    )


def _entries(config: Config) -> dict[str, dict[str, str]]:
    """Name and hash of the modules by path of each remembered YAML."""
    if is_remote(config.run.root):
        return {}
    try:
        return json.loads(_file(config).read_text())
    except (OSError, ValueError):
        return {}


def _file(config: Config) -> Path:
    return state_folder(config.run.root) / "names.json"
