"""Checkpoints as files and objects, for processes that import no TensorFlow.

In an object store, checkpoints are copied folders.
"""

from __future__ import annotations

import contextlib
import posixpath

from strategos.components.files import listing, storage
from strategos.components.files.places import Place, RemotePath
from strategos.components.trainer.spec import CHECKPOINT_MARK


def newest(folder: Place) -> int:
    """The step of the newest checkpoint, complete or not; 0 if there is none.

    Args:
      folder: The folder of a training's checkpoints.

    Raises:
      OSError: The store does not answer, or rejects the request.
    """
    names = (each.name for each in folder.glob("step-*"))
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def newest_complete(folder: Place) -> int:
    """The step of the newest complete checkpoint; 0 if there is none.

    Also if the store does not answer within two to five seconds: for a process that
    asks again and again, and must not pause its heartbeats for longer.

    Args:
      folder: The folder of a training's checkpoints.
    """
    with contextlib.suppress(OSError):
        if isinstance(folder, RemotePath):
            names = complete(str(folder), patient=False)
        else:
            marks = folder.glob(f"step-*/{CHECKPOINT_MARK}")
            names = {mark.parent.name for mark in marks}
        return max((int(name.removeprefix("step-")) for name in names), default=0)
    return 0


def complete(url: str, *, patient: bool = True) -> set[str]:
    """The names of the complete checkpoints in a folder of an object store.

    Args:
      url: The folder.
      patient: As for `object_stores.connect`.

    Raises:
      OSError: The store does not answer, or rejects the request.
    """
    objects = listing.objects(url, patient=patient)
    places = [posixpath.split(each.path) for each in objects]
    return {
        posixpath.basename(place) for place, name in places if name == CHECKPOINT_MARK
    }


def upload(folder: str, url: str) -> None:
    """Copies a checkpoint to an object store; the mark of a complete one comes last.

    Args:
      folder: The local folder of the checkpoint.
      url: URL of the copy.

    Raises:
      OSError: The store does not answer, or rejects the request.
    """
    storage.put(folder, url, last=CHECKPOINT_MARK)
