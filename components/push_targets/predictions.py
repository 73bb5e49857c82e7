"""A published folder of predictions, as its manifest describes it."""

from __future__ import annotations

import json
from typing import Any

from strategos.components.files import listing, storage

MANIFEST = "_manifest.json"

PREDICTIONS = "predictions"
"""Property of an InferenceResult: path or URL of the folder; missing without one."""


def manifest(path: str) -> dict[str, Any] | None:
    """The manifest of a folder; None if the folder is missing or not complete.

    Args:
      path: Path or URL of the folder.
    """
    file = f"{path}/{MANIFEST}"
    if not listing.exists(file, patient=True):
        return None
    content: dict[str, Any] = json.loads(storage.read(file, patient=True))
    return content


def lost(path: str) -> str:
    """The defect of a published folder, for a message; "" if all files are there.

    Args:
      path: Path or URL of the folder.
    """
    try:
        if (about := manifest(path)) is None:
            return f"{path} has no {MANIFEST}"
        files = {f"{path}/{each['name']}": each["bytes"] for each in about["files"]}
        sizes = storage.statuses([*files])
    except FileNotFoundError as error:
        return f"{error.filename} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    for (file, size), status in zip(files.items(), sizes, strict=True):
        if status.size != size:
            return f"{file} has another size"
    return ""
