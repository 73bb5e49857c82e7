"""Remote file systems: which ones are supported, and registering them.

TensorFlow supports `gs://` itself, and `s3://` once tensorflow-io is imported. Each
process that reads or writes a root calls `register` on it first.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys

from strategos.components.errors import UserError

_NEEDS = {"gs": None, "s3": "tensorflow_io"}
_HAS_S3 = sys.version_info < (3, 11)  # tensorflow-io exists for no later TensorFlow


def is_remote(uri: str) -> bool:
    """Whether `uri` is a URL (`gs://…`, `s3://…`) and not a path on this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", uri) is not None


def missing(uri: str) -> str | None:
    """Why a path or URL cannot be used here, and what to do; None if it can.

    Args:
      uri: Path or URL.
    """
    if not is_remote(uri):
        return None
    scheme = uri.partition("://")[0]
    if scheme not in _NEEDS:
        return f"{scheme}:// is not known; use gs://, s3:// or a folder"
    package = _NEEDS[scheme]
    if package is None or (_HAS_S3 and importlib.util.find_spec(package)):
        return None
    if _HAS_S3:
        return f"{scheme}:// needs tensorflow-io: pip install 'strategos[s3]'"
    return (
        f"{scheme}:// needs tensorflow-io, which there is for Python 3.10 (TensorFlow "
        "2.16) alone; use that, gs:// or a folder"
    )


def register(uri: str) -> None:
    """Makes TensorFlow in this process support a path or URL.

    Args:
      uri: Path or URL.

    Raises:
      UserError: The file system is not supported here; the message has the remedy.
    """
    problem = missing(uri)
    if problem:
        raise UserError(f"{uri}: {problem}.")
    if uri.startswith("s3://"):
        import tensorflow_io  # noqa: F401


def register_with_tfx(uri: str) -> None:
    """Like `register`; also lets TFX see empty folders on S3.

    TFX creates the folder of each output beforehand, and reuses an output from the
    cache only if its folder still exists. S3 has objects only, and a folder is a common
    prefix of their names. So an empty object stands for the folder, as in S3's own
    console.

    Args:
      uri: Path or URL.

    Raises:
      UserError: The file system is not supported here.
    """
    register(uri)
    if uri.startswith("s3://"):
        _leave_markers()


@functools.cache
def _leave_markers() -> None:
    from tfx.dsl.io import filesystem_registry
    from tfx.dsl.io.plugins.tensorflow_gfile import TensorflowFilesystem

    class S3(TensorflowFilesystem):
        SUPPORTED_SCHEMES = ["s3://"]

        @staticmethod
        def makedirs(path: str) -> None:
            with TensorflowFilesystem.open(path.rstrip("/") + "/", "w") as marker:
                marker.write("")

        mkdir = makedirs

    registry = filesystem_registry.DEFAULT_FILESYSTEM_REGISTRY
    registry.register(S3, priority=0)


def short(name: str) -> str:
    """A path as a user would type it here: relative if that is shorter."""
    relative = os.path.relpath(name) if os.path.isabs(name) else name
    return name if relative.startswith("..") else relative
