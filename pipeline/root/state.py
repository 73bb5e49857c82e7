"""What Strategos keeps on this machine: of a root, and of the user.

A local root has its state with it. That of a remote one (lock, compiled pipelines, the
events and logs of its runs) lies here: each machine has its own, and the lock keeps
apart the runs of one machine only.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from strategos.components.files.filesystems import is_remote

_LONGEST_NAME = 60


def state_folder(root: str | Path) -> Path:
    """The folder for the local state of a pipeline root, which need not exist yet."""
    if not is_remote(str(root)):
        return Path(root) / ".strategos"
    url = str(root).rstrip("/")
    name = re.sub("[^A-Za-z0-9]+", "-", url)[:_LONGEST_NAME].strip("-")
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return user_folder() / "roots" / f"{name}-{digest}"


def file_hashes(root: str | Path) -> Path:
    """Where the hashes of files that runs under `root` read are remembered."""
    return state_folder(root) / "file-hashes.json"


def user_folder() -> Path:
    """The folder for what belongs to the user and to no root, by the XDG standard."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "strategos"


def make_state(folder: Path) -> None:
    """Makes a state folder where missing; the user's own is for the user alone."""
    private = user_folder()
    if folder == private or private in folder.parents:
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
