"""Checkpoints in an object store that TensorFlow cannot open: folders that are copied.

Imports neither TensorFlow nor TFX.
"""

from __future__ import annotations

import posixpath

from strategos.components.files import storage
from strategos.components.trainer.spec import CHECKPOINT_MARK


def complete(url: str) -> set[str]:
    """The names of the complete checkpoints in a folder of an object store.

    Args:
      url: The folder.

    Raises:
      OSError: The store does not answer, or rejects the request.
    """
    objects = storage.objects(url, patient=True)
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
    storage.put(folder, url, left_out=(CHECKPOINT_MARK,))
    storage.put(f"{folder}/{CHECKPOINT_MARK}", f"{url}/{CHECKPOINT_MARK}")
