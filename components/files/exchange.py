"""Files that workers on other hosts share with an executor that works on local copies.

Under a root in an object store, executors work on local copies of the artifacts, which
workers do not see. A folder in the object store, `exchange`, then holds the
shared files; it is None where workers see the folders of the executor.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from strategos.components.files import commit, filesystems, storage, temporary

_downloads = contextlib.ExitStack()  # of this process
atexit.register(_downloads.close)


@contextlib.contextmanager
def folder(exchange: str | None, here: str) -> Iterator[str]:
    """Makes a folder that this process and all workers see, removed after the block.

    Args:
      exchange: The URL; see above.
      here: A local folder, for the new one if workers see it.

    Raises:
      OSError: The folder cannot be made.
    """
    if exchange is None:
        with tempfile.TemporaryDirectory(prefix="shared-", dir=here) as made:
            yield made
        return
    url = f"{exchange}/{uuid.uuid4().hex}"
    try:
        yield url
    finally:
        storage.remove(url)


@contextlib.contextmanager
def sent(exchange: str | None, path: str) -> Iterator[str]:
    """Copies a local folder to workers that do not see it, for the time of the block.

    Yields:
      The argument of `local` in a worker: the folder itself if workers see it.

    Args:
      exchange: The URL; see above.
      path: The folder.

    Raises:
      OSError: The folder cannot be copied.
    """
    if exchange is None or not os.path.isdir(path):
        yield path
        return
    with folder(exchange, path) as url:
        storage.put(path, url)
        yield url


def local(path: str) -> str:
    """The folder in which this process finds the files that `sent` has copied.

    Args:
      path: From `sent`. The processes of a host share one download of a URL.

    Raises:
      OSError: The folder cannot be downloaded.
    """
    return _downloaded(path) if filesystems.is_remote(path) else path


@functools.cache
def _downloaded(url: str) -> str:
    name = hashlib.sha256(f"{os.geteuid()} {url}".encode()).hexdigest()[:12]
    target = Path(_downloads.enter_context(temporary.shared(name)), "content")
    if not target.exists():
        with commit.aside(target, shared=True) as aside:
            storage.get(url, str(aside))
    return str(target)
