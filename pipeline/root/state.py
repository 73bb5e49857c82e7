"""Folders for local state: of a root, and of the user.

State is the lock, compiled pipelines, and the events and logs of runs. A local root
contains its state. The state of a remote root is in a folder of the user's: each
machine has its own, so the lock excludes only other runs on the same machine; `lease`
excludes runs on others.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from strategos.components.container.mounts import VARIABLE, Mounts
from strategos.components.evaluator import SUMS_VARIABLE
from strategos.components.example_gen import HASHES_VARIABLE
from strategos.components.files.filesystems import is_remote
from strategos.components.span_validator import FOLDER_VARIABLE
from strategos.components.transform import STATES_VARIABLE

_LONGEST_NAME = 60


def state_folder(root: str | Path) -> Path:
    """The folder for the local state of a pipeline root; it need not exist yet.

    Args:
      root: The pipeline root, a path or a URL.
    """
    if not is_remote(str(root)):
        return Path(root) / ".strategos"
    url = str(root).rstrip("/")
    name = re.sub("[^A-Za-z0-9]+", "-", url)[:_LONGEST_NAME].strip("-")
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return user_folder() / "roots" / f"{name}-{digest}"


def copies(root: str) -> Mounts:
    """Maps the URLs of artifacts to the places of their copies in the local state.

    Args:
      root: The URL of the pipeline root.
    """
    return Mounts({VARIABLE: str(state_folder(root) / "copies")})


def file_hashes(root: str | Path) -> Path:
    """The path of the cache for hashes of files that runs under `root` read."""
    return state_folder(root) / "file-hashes.json"


def kept_measurements(root: str, *, cached: bool) -> dict[str, str]:
    """Measurements of files that later runs may use, by environment variable.

    Args:
      root: The pipeline root, a path or a URL.
      cached: Whether the run uses results that earlier runs computed of examples.
    """
    folders = {FOLDER_VARIABLE: "span-statistics"}
    if cached:
        folders[SUMS_VARIABLE] = "evaluation-sums"
        if not is_remote(root):  # its files are compared by their time
            folders[STATES_VARIABLE] = "analysis-states"
    state, hashes = state_folder(root), {HASHES_VARIABLE: str(file_hashes(root))}
    return hashes | {name: str(state / folder) for name, folder in folders.items()}


def user_folder() -> Path:
    """The user's state folder, shared by all roots; by the XDG standard."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "strategos"


def make_state(folder: Path) -> None:
    """Creates a state folder; the user's own gets mode 0700."""
    private = user_folder()
    if folder == private or private in folder.parents:
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
