"""A serving folder: numbered versions, each whole or not there. Standard library."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from strategos.components.errors import UserError

ASIDE = ".tmp-"


def push(
    model: str,
    destination: Path,
    keep: int,
    clock: Callable[[], float] = time.time,
    copy: Callable[[str, str], object] = shutil.copytree,
) -> Path:
    """Makes `model` the newest version in `destination`, and keeps `keep` of them.

    One process at a time pushes to a destination: what lies aside there is taken for
    the remains of a crash.

    Args:
      model: The SavedModel's folder.
      destination: The serving folder, made where missing.
      keep: How many versions to leave, the new one included.
      clock: Gives unix seconds.
      copy: Copies a folder to one that is not there yet.

    Returns:
      The version's folder.

    Raises:
      UserError: The destination cannot be written.
    """
    try:
        destination.mkdir(parents=True, exist_ok=True)
        for remains in destination.glob(f"{ASIDE}*"):
            shutil.rmtree(remains)
        newest = max(versions(destination), default=0)
        folder = destination / str(max(int(clock()), newest + 1))
        _copy(copy, model, folder)
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


def _copy(copy: Callable[[str, str], object], model: str, folder: Path) -> None:
    aside = folder.with_name(ASIDE + folder.name)
    try:
        copy(model, str(aside))
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _remove(folder: Path) -> None:
    # Aside first: a server never sees half of a version.
    shutil.rmtree(folder.rename(folder.with_name(ASIDE + folder.name)))
