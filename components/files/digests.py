"""SHA-256 digests of file contents, cached like in git's index.

Equal size and modification time do not prove that a file is unchanged: an edit can keep
both (`cp -p`, `rsync -t`, `touch -r`), and a copy of the same content has another time.
So the whole content is hashed, and a digest is reused only for a file with the same
size, inode, modification time and status change time as when it was hashed. No program
can set the status change time.

No program can set the time of an object in an object store either. So an object is not
read: its size and the time of its last change stand for its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from strategos.components import events
from strategos.components.files import commit, filesystems, storage
from strategos.components.wording import data_size

_CHUNK = 1 << 20
_WORTH_A_NOTE = 4 << 30  # bytes: some seconds of hashing
# A file written more recently than this when it is hashed may be written again within
# one tick of the file system's clock, with the same status.
_SETTLED_SECONDS = 2.0

_Status = tuple[int, int, int, int]


def digests(paths: Sequence[str], memo: Path | None = None) -> list[str]:
    """The SHA-256 of each file's content, in hexadecimal.

    Args:
      paths: Absolute paths of files; or URLs of objects, hashed by size and time.
      memo: JSON file that caches digests; used if its folder exists.

    Raises:
      OSError: A file cannot be read.
    """
    if paths and filesystems.is_remote(paths[0]):
        return [_digest_of(each) for each in _settled(paths)]
    known = _read(memo)
    by_path: dict[str, str] = {}
    unknown = []
    for path in dict.fromkeys(paths):
        status, digest = known.get(path, (None, ""))
        if status == _status(path):
            by_path[path] = digest
        else:
            unknown.append(path)
    if unknown:
        total = sum(os.path.getsize(path) for path in unknown)
        if total > _WORTH_A_NOTE:
            message = f"hashing {data_size(total)} of data files that are new"
            events.emit("note", message=message)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            hashed = dict(zip(unknown, pool.map(_hash, unknown), strict=True))
        by_path |= {path: digest for path, (_, digest) in hashed.items()}
        _write(memo, known | hashed)
    return [by_path[path] for path in paths]


def of_sources(folder: Path) -> str:
    """Hashes the paths and contents of all Python files below `folder`."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _settled(paths: Sequence[str]) -> list[storage.Status]:
    """Statuses of objects, read when none can change again within its last second."""
    statuses = storage.statuses(paths)
    youngest = max(each.changed for each in statuses) / 1e9
    wait = youngest + _SETTLED_SECONDS - time.time()
    if wait <= 0:
        return statuses
    time.sleep(min(wait, _SETTLED_SECONDS))  # less, if the store's clock is ahead
    return storage.statuses(paths)


def _digest_of(status: storage.Status) -> str:
    return hashlib.sha256(f"{status.size} {status.changed}".encode()).hexdigest()


def _status(path: str) -> _Status:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _hash(path: str) -> tuple[_Status | None, str]:
    """Status and digest of a file; no status if the file may still be changing."""
    before, started = _status(path), time.time()
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    newest = max(before[1], before[2]) / 1e9
    settled = newest + _SETTLED_SECONDS < started and _status(path) == before
    return before if settled else None, digest.hexdigest()


def _read(memo: Path | None) -> dict[str, tuple[_Status | None, str]]:
    try:
        rows = json.loads(memo.read_text()) if memo else {}
        return {path: (tuple(row[:-1]), row[-1]) for path, row in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError, IndexError):
        return {}  # an unreadable cache: everything is hashed, and the file rewritten


def _write(memo: Path | None, known: dict[str, tuple[_Status | None, str]]) -> None:
    if memo is None or not memo.parent.is_dir():
        return
    rows = {
        path: [*status, digest]
        for path, (status, digest) in known.items()
        if status and os.path.exists(path)
    }
    with contextlib.suppress(OSError):  # the cache only saves time
        commit.write(memo, json.dumps(rows))
