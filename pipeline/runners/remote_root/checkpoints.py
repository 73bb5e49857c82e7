"""Copies of a training's checkpoints in an object store, for runs on other machines.

The training writes checkpoints to a local folder. A thread copies each one that is
complete, its mark last, and removes those that the training has removed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from strategos.components.errors import UserError
from strategos.components.files import commit, object_stores, storage, trees
from strategos.components.trainer import finished, remote_checkpoints
from strategos.components.trainer.spec import CHECKPOINT_MARK

_LOOK_SECONDS = 1.0


@contextlib.contextmanager
def following(folder: Path, url: str) -> Iterator[None]:
    """Copies new checkpoints to a URL while the block runs.

    Args:
      folder: The local folder of the checkpoints. If the newest checkpoint is at the
        URL, it is downloaded before the block runs.
      url: The folder in the object store.

    Raises:
      UserError: The object store cannot be read.
    """
    with object_stores.problems_of(url, "run.root", "read"):
        known = remote_checkpoints.complete(url)
    newest = max(known, default="")
    is_finished = (folder / finished.MARK).exists()
    if not is_finished and newest > max(_complete_in(folder), default=""):
        _download(url, newest, folder)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder, url, known, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(folder: Path, url: str, known: set[str], ended: threading.Event) -> None:
    is_over = False
    while not is_over:
        is_over = ended.wait(_LOOK_SECONDS)  # looks once more at the end
        if (folder / finished.MARK).exists():
            continue  # the model is exported: nobody resumes this training
        try:
            _update(folder, url, known)
        except UserError as error:  # or the training has just removed the checkpoint
            logging.warning("Checkpoints are not copied: %s", error)


def _update(folder: Path, url: str, known: set[str]) -> None:
    """Makes the checkpoints at a URL those in a folder; changes `known` with them."""
    here = _complete_in(folder)
    for name in sorted(here - known):
        with object_stores.problems_of(url, "run.root", "written"):
            remote_checkpoints.upload(str(folder / name), f"{url}/{name}")
        known.add(name)
    for name in sorted(known - here) if here else ():
        trees.remove(f"{url}/{name}")
        known.remove(name)


def _complete_in(folder: Path) -> set[str]:
    """The names of the complete checkpoints in a folder."""
    return {mark.parent.name for mark in folder.glob(f"step-*/{CHECKPOINT_MARK}")}


def _download(url: str, name: str, folder: Path) -> None:
    with commit.aside(folder / name, f".{name}") as aside:
        with object_stores.problems_of(url, "run.root", "read"):
            storage.get(f"{url}/{name}", str(aside))
        trees.remove(str(folder / name))  # incomplete
