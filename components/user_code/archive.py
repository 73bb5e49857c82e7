"""The user's modules as one object in an object store, named by its content.

An archive holds the files that the fingerprint of a module covers: the module, its
imports and the files that it names. It is a ZIP file without compression and times, so
the same files make the same bytes everywhere. Its name ends with the hash of the bytes,
which a download is checked against.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from strategos.components.errors import UserError
from strategos.components.files import (
    digests,
    object_stores,
    storage,
    temporary,
)
from strategos.components.user_code import fingerprint
from strategos.components.user_code.workload_paths import WorkloadPaths

VARIABLE = "STRATEGOS_MODULES"
"""Environment variable of a container with the URL of the archive that it needs."""

_SUFFIX = ".zip"
_DIGITS = 32
_OLDEST = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o644 << 16


def pack(folder: str, module: str, parent: Path, declared: Sequence[str] = ()) -> Path:
    """Writes the archive of a module; returns its path.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      parent: The folder for the archive.
      declared: Further files, see `fingerprint.fingerprint`.

    Raises:
      OSError: A file cannot be read.
    """
    home = Path(folder).resolve()
    members = fingerprint.members(folder, module, declared)
    root = os.path.commonpath([home, *(path.parent for path in members)])
    aside = parent / f"{module}.part"
    with zipfile.ZipFile(aside, "w") as archive:
        archive.comment = os.fsencode(home.relative_to(root))
        for at, path in sorted(members.items()):
            member = zipfile.ZipInfo(at.relative_to(root).as_posix(), _OLDEST)
            member.external_attr, member.file_size = _READABLE, path.stat().st_size
            with path.open("rb") as source, archive.open(member, "w") as out:
                shutil.copyfileobj(source, out)
    return aside.rename(parent / f"{module}-{_digest(aside)}{_SUFFIX}")


def upload(
    folder: str, module: str, url: str, key: str, declared: Sequence[str] = ()
) -> str:
    """Uploads the archive of a module, unless it exists; returns its URL.

    Args:
      folder: Folder of the workload's modules.
      module: Name of the module.
      url: `s3://…` or `gs://…` of the folder of archives.
      key: The setting that names `url`, for messages.
      declared: Further files, see `fingerprint.fingerprint`.

    Raises:
      UserError: The object store does not answer, or rejects that.
    """
    with temporary.folder() as scratch:
        file = pack(folder, module, Path(scratch), declared)
        target = f"{url.rstrip('/')}/{file.name}"
        with object_stores.problems_of(url, key, "written"):
            files, path = object_stores.connect(target), object_stores.path_of(target)
            # A store shows whole objects only, but another size is never the same.
            if files.get_file_info(path).size != file.stat().st_size:
                storage.put(file, target)
    return target


def download(url: str, parent: Path, key: str) -> str:
    """Downloads the modules in an archive; returns the folder with them.

    Args:
      url: URL of the archive.
      parent: A folder of this process, for a folder with the name of the archive.
      key: The setting that names the archive's folder, for messages.

    Raises:
      UserError: The archive is missing, cannot be read, or has other content.
    """
    file = parent / url.rpartition("/")[2]
    _fetch(url, file, key)
    if _digest(file) != file.stem.rpartition("-")[2]:
        raise UserError(
            f"{url}: the content differs from the hash in the name",
            key=key,
            remedy="Delete this object, and compile or submit the pipeline again, "
            "which uploads the modules again.",
        )
    with zipfile.ZipFile(file) as archive:
        archive.extractall(parent / file.stem)
        home = parent / file.stem / os.fsdecode(archive.comment)
    file.unlink()
    home.mkdir(parents=True, exist_ok=True)  # no files: the module is an installed one
    return str(home)


@contextmanager
def of_step(target: str) -> Iterator[None]:
    """Lets executors use the modules of the archive that the environment names, if any.

    Args:
      target: `kubeflow` or `vertex`: the section with `modules`.

    Raises:
      UserError: See `download`.
    """
    url = os.environ.get(VARIABLE)
    if not url:
        yield
        return
    with temporary.folder() as scratch:
        folder = download(url, Path(scratch), f"{target}.modules")
        os.environ.update(WorkloadPaths(folder=folder).to_environment())
        yield


def _fetch(url: str, file: Path, key: str) -> None:
    try:
        with object_stores.problems_of(url, key, "read"):
            storage.get(url, str(file))
    except UserError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise UserError(
            f"{url}: object not found; it may have been deleted since the "
            "pipeline was compiled",
            key=key,
            remedy="Compile or submit the pipeline again, which uploads the modules "
            "again, and create its schedules again.",
        ) from None


def _digest(file: Path) -> str:
    return digests.digests([str(file)])[0][:_DIGITS]
