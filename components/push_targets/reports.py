"""Reports beside pushed versions: `reports/VERSION.html` in the folder of a target.

Not in the folder of a version, which is the model server's. Model servers and
`Target.versions` pass over `reports`, as the name is no number. A report is written
after its version and removed before it. Targets of other packages have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strategos.components.errors import UserError
from strategos.components.files import filesystems, listing, storage
from strategos.components.files.object_stores import problems_of

if TYPE_CHECKING:
    from strategos.components.push_targets.targets import Target

_FOLDER = "reports"
_KEY = "pusher.to"


def place(folder: str, version: int) -> str | None:
    """The path or URL of the report of a version, which may not exist.

    Args:
      folder: The target's `uri`.
      version: The version.

    Returns:
      None for a target of another package.
    """
    return None if filesystems.unknown(folder) else f"{_all(folder)}/{version}.html"


def exists(target: Target, version: int) -> bool:
    """Whether a version has its report, or is in a target that keeps none.

    Args:
      target: The target with the version.
      version: The version.

    Raises:
      UserError: The object store cannot be read.
    """
    path = place(target.uri, version)
    if path is None:
        return True
    with problems_of(path, _KEY, "read"):
        return listing.exists(path)


def listed(folder: str) -> dict[int, str]:
    """Paths or URLs of the reports in a target, by version.

    Args:
      folder: The target's `uri`.

    Raises:
      UserError: The object store cannot be read.
    """
    if filesystems.unknown(folder):
        return {}
    names = (path.rpartition("/")[2] for path in listing.listed(_all(folder)))
    stems = (name.removesuffix(".html") for name in names if name.endswith(".html"))
    return {int(x): f"{_all(folder)}/{x}.html" for x in stems if x.isdecimal()}


def write(target: Target, version: int, page: str | bytes) -> None:
    """Writes the report of a version: as a whole or not at all.

    Args:
      target: The target with the version.
      version: The version.
      page: The HTML page.

    Raises:
      UserError: The object store rejects that.
      OSError: The local folder cannot be written.
    """
    path = place(target.uri, version)
    if path:
        with problems_of(path, _KEY, "written"):
            storage.write(path, page)


def copy(source: Target, version: int, target: Target, pushed: int) -> str:
    """Gives a copy of a version the report of its model, if the version has one.

    Args:
      source: The target with the version.
      version: The version.
      target: The target with the copy.
      pushed: The version of the copy.

    Returns:
      Why the report cannot be copied; "" if nothing failed.
    """
    path = place(source.uri, version)
    try:
        if path and listing.exists(path):
            write(target, pushed, storage.read(path))
    except (OSError, UserError) as error:
        return str(error)
    return ""


def remove(folder: str, version: int) -> None:
    """Removes the report of a version, if the version has one.

    Args:
      folder: The target's `uri`.
      version: The version.

    Raises:
      OSError: The report cannot be removed.
    """
    path = place(folder, version)
    if path:
        storage.remove(path)


def _all(folder: str) -> str:
    return f"{folder}/{_FOLDER}"
